--! base queue
-- Puts dead letters back into their queues. ARGV: ids of the letters. Returns how many went back; a letter that is gone, or
-- that never was an entry (a bad seed), stays as it is and counts as none. A letter leaves only after its entry is queued.
local us = clock()
local now = math.floor(us / 1000)
local replayed = 0
for _, id in ipairs(ARGV) do
  local found = redis.call('XRANGE', DEAD, id, id)[1]
  local letter = {}
  if found then
    for i = 1, #found[2], 2 do letter[found[2][i]] = found[2][i + 1] end
  end
  if letter.element then
    push(letter.host, letter.band, {'\0\0' .. string.sub(letter.element, 3)}, now, false)
    redis.call('XDEL', DEAD, id)
    replayed = replayed + 1
  end
end
if replayed > 0 then
  redis.call('HINCRBY', COUNTERS, 'replayed', replayed)
  redis.call('HSET', STATE, 'phase', 'open', 'active', now, 'time', text(us))
  wake()
end
return replayed
