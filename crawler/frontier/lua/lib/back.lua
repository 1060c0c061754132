-- Gives leases back to the front of their queues, nothing counted against their entries; ids that are not there are left out.
-- The newest go first, so that the oldest is in front in the end. Returns how many were given back.
local function give_back(ids, held, at)
  table.sort(ids, function(a, b) return tonumber(a) > tonumber(b) end)
  local returned = 0
  for from = 1, #ids, 500 do
    local batch = {}
    for i = from, math.min(from + 499, #ids) do batch[#batch + 1] = ids[i] end
    local found = release(batch, held)
    for _, id in ipairs(batch) do
      local lease = found[id]
      if lease then
        hand_back(lease[2], lease[3], lease[4], at)
        returned = returned + 1
      end
    end
  end
  if returned > 0 then redis.call('HINCRBY', COUNTERS, 'returned', returned) end
  return returned
end
