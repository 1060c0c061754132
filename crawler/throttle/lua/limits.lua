--! frontier/base
-- Installs the rules of a crawl; those of other settings go. Rules that an operator set stay.
-- ARGV: 1 digest of all that follows, 2 packed default rule or '', 3 packed list of {Lua pattern, rule} or '', then name,
--       packed rule pairs; a name '' has the first interval (us) of hosts whose answers' time is not known yet.
-- Returns 1 if they differ from those that were there, else 0.
if redis.call('HGET', LIMITS, 'digest') == ARGV[1] then return 0 end
local old = redis.call('HGET', LIMITS, 'names')
if old then
  local names = cmsgpack.unpack(old)
  for from = 1, #names, 1000 do redis.call('HDEL', LIMITS, unpack(names, from, math.min(from + 999, #names))) end
end
redis.call('HDEL', LIMITS, 'default', 'globs', 'named', 'names', 'start')
redis.call('HSET', LIMITS, 'digest', ARGV[1])
if ARGV[2] ~= '' then redis.call('HSET', LIMITS, 'default', ARGV[2]) end
if ARGV[3] ~= '' then redis.call('HSET', LIMITS, 'globs', ARGV[3]) end
local names = {}
for i = 4, #ARGV, 2 do
  if ARGV[i] == '' then
    redis.call('HSET', LIMITS, 'start', ARGV[i + 1])
  else
    names[#names + 1] = 'r:' .. ARGV[i]
    redis.call('HSET', LIMITS, 'r:' .. ARGV[i], ARGV[i + 1])
  end
end
if #names > 0 then redis.call('HSET', LIMITS, 'named', '1', 'names', cmsgpack.pack(names)) end
return 1
