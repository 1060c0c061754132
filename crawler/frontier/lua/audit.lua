--! base queue
-- Counts what the crawl's structures hold, all in one step. ARGV: 1, 2 first and last of the hosts, in the order of HOSTS, whose
-- queues are counted; 3 most workers whose leases are counted.
-- Returns packed {hosts, entries in those queues, {counter, value..}, delayed, leases, expiries, leases held, workers, suspects,
-- dead letters}.
local entries = 0
for _, host in ipairs(redis.call('ZRANGE', HOSTS, ARGV[1], ARGV[2])) do
  entries = entries + redis.call('LLEN', queue_key(host, '0'))
  for _, band in ipairs(redis.call('ZRANGE', P .. 'prio:' .. host, 0, -1)) do
    entries = entries + redis.call('LLEN', queue_key(host, band))
  end
end
local held = 0
for _, worker in ipairs(redis.call('ZRANGE', WORKERS, 0, ARGV[3] - 1)) do
  held = held + redis.call('SCARD', P .. 'held:' .. worker)
end
return cmsgpack.pack({redis.call('ZCARD', HOSTS), entries, redis.call('HGETALL', COUNTERS), redis.call('ZCARD', DELAYED),
                      redis.call('HLEN', INFLIGHT), redis.call('ZCARD', LEASE), held, redis.call('ZCARD', WORKERS),
                      redis.call('LLEN', SUSPECTS), redis.call('XLEN', DEAD)})
