--! base queue lease
-- A worker leaves: all that it still holds goes back to the front of its queues, and nothing is counted against it.
-- ARGV: 1 worker id, 2 feeder name that is through, or ''. Returns the number of leases given back.
redis.call('ZREM', WORKERS, ARGV[1])
local now = math.floor(clock() / 1000)
local ids = redis.call('SMEMBERS', HELD)
table.sort(ids, function(a, b) return tonumber(a) > tonumber(b) end)
local returned = 0
for from = 1, #ids, 500 do
  local batch = {}
  for i = from, math.min(from + 499, #ids) do batch[#batch + 1] = ids[i] end
  local found = release(batch, HELD)
  for _, id in ipairs(batch) do
    local lease = found[id]
    if lease then
      hand_back(lease[2], lease[3], lease[4], now)
      returned = returned + 1
    end
  end
end
if ARGV[2] ~= '' then redis.call('SREM', FEEDERS, ARGV[2]) end
redis.call('DEL', SESSION, HELD)
redis.call('SREM', IDLE, ARGV[1])
if redis.call('HGET', STATE, 'start') == ARGV[1] then redis.call('HSET', STATE, 'start', '') end
if returned > 0 then redis.call('HINCRBY', COUNTERS, 'returned', returned) end
wake()
return returned
