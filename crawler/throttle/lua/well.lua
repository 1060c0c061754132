--! frontier/base
-- Takes note that a host works again: its circuit closes.
-- ARGV: 1 host, 2 age of the request that it answered (ms). Returns 1 if its circuit was open, else 0.
local host, us = ARGV[1], clock()
-- One that was sent before the circuit opened tells nothing.
if us - tonumber(ARGV[2]) * 1000 < tonumber(redis.call('HGET', P .. 'failing:' .. host, 'opened') or 0) then return 0 end
redis.call('DEL', P .. 'failing:' .. host)
if redis.call('HDEL', P .. 'pace:' .. host, 'probe', 'lost') == 0 then return 0 end
redis.call('HDEL', P .. 'host:' .. host, 't')
redis.call('ZADD', HOSTS, 'XX', math.floor(us / 1000), host)
wake()
return 1
