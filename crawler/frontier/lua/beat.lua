--! base
-- Keeps a worker and its leases alive. Not part of the ordered stream: it runs on a connection of its own.
-- ARGV: 1 worker id, 2 session token, 3 lapse (ms), 4 lease (ms), 5 what the worker reports of itself (packed), then the
--       ids of the leases that it still works on.
-- Returns packed {'ok', {ids that are not leased any more}, members of the roster} or {'stale'}.
-- The first write removes nothing: after a write of that kind a full server refuses no further one of this script.
redis.call('ZREM', WORKERS, '')
if redis.call('HGET', SESSION, 'token') ~= ARGV[2] then return cmsgpack.pack({'stale'}) end
local now = math.floor(clock() / 1000)
redis.call('ZADD', WORKERS, now + tonumber(ARGV[3]), ARGV[1])
redis.call('HSET', SESSION, 'report', ARGV[5])
redis.call('PEXPIRE', SESSION, 86400000)
local lost = {}
for from = 6, #ARGV, 500 do
  local ids, renewed = {}, {}
  for i = from, math.min(from + 499, #ARGV) do ids[#ids + 1] = ARGV[i] end
  for i, expiry in ipairs(redis.call('ZMSCORE', LEASE, unpack(ids))) do
    if expiry then
      renewed[#renewed + 1] = now + tonumber(ARGV[4])
      renewed[#renewed + 1] = ids[i]
    else
      lost[#lost + 1] = ids[i]
    end
  end
  if #renewed > 0 then redis.call('ZADD', LEASE, unpack(renewed)) end
end
return cmsgpack.pack({'ok', lost, redis.call('ZCARD', WORKERS)})
