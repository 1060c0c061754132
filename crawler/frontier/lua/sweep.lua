--! base
-- Removes seen filters of generations that are over, at most 256 keys a call. ARGV: none. Returns the keys removed.
local garbage = redis.call('SRANDMEMBER', GARBAGE)
if not garbage then return 0 end
local base, progress = P .. garbage, 'swept:' .. garbage
local packed = redis.call('GET', base)
local names = {}
if packed then
  local meta = cmsgpack.unpack(packed)
  local swept = tonumber(redis.call('HGET', STATE, progress) or 0)
  local at = 0
  local function visit(name)
    at = at + 1
    if at > swept and #names < 256 then names[#names + 1] = name end
  end
  if type(meta[1]) == 'table' then
    for i, layer in ipairs(meta) do
      for segment = 0, math.floor((layer[1] - 1) / 1016) do visit(base .. ':' .. i .. ':' .. segment) end
    end
  else
    for bucket = 0, 8 * 2 ^ meta[2] + meta[3] - 1 do visit(base .. ':' .. text(bucket)) end
  end
end
if #names == 256 then
  redis.call('HINCRBY', STATE, progress, 256)
else
  names[#names + 1] = base
  redis.call('HDEL', STATE, progress)
  redis.call('SREM', GARBAGE, garbage)
end
return redis.call('UNLINK', unpack(names))
