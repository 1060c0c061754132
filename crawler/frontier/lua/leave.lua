--! base queue lease back
-- A worker leaves: all that it still holds goes back to the front of its queues, and nothing is counted against it.
-- ARGV: 1 worker id, 2 feeder name that is through, or ''. Returns the number of leases given back.
redis.call('ZREM', WORKERS, ARGV[1])
local now = math.floor(clock() / 1000)
local returned = give_back(redis.call('SMEMBERS', HELD), HELD, now)
if ARGV[2] ~= '' then redis.call('SREM', FEEDERS, ARGV[2]) end
redis.call('DEL', SESSION, HELD)
forget_busy(ARGV[1])
redis.call('SREM', IDLE, ARGV[1])
if redis.call('HGET', STATE, 'start') == ARGV[1] then redis.call('HSET', STATE, 'start', '') end
wake()
return returned
