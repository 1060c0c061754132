--! frontier/base
-- Takes an operator's order for a host, or for a domain and the hosts below it; lifts the one that was given before.
-- ARGV: 1 name, 2 packed order (lib/host.lua) or '' to lift it and all that slows the host down.
-- Returns 1 if there was an order before, else 0.
local name, field = ARGV[1], 'o:' .. ARGV[1]
local had = redis.call('HEXISTS', LIMITS, field)
if ARGV[2] ~= '' then
  if had == 0 then redis.call('HINCRBY', LIMITS, 'ordered', 1) end
  redis.call('HSET', LIMITS, field, ARGV[2])
else
  if had == 1 then
    redis.call('HDEL', LIMITS, field)
    if redis.call('HINCRBY', LIMITS, 'ordered', -1) <= 0 then redis.call('HDEL', LIMITS, 'ordered') end
  end
  redis.call('ZREM', BLOCKS, name)
  redis.call('ZREM', SLOWED, name)
  redis.call('DEL', P .. 'pace:' .. name, P .. 'heard:' .. name, P .. 'failing:' .. name)
  redis.call('HDEL', P .. 'host:' .. name, 't')
end
redis.call('ZADD', HOSTS, 'XX', math.floor(clock() / 1000), name)
wake()
return had
