--! frontier/base
-- Tells which cookies changed, and the cookies of some domains.
-- ARGV: 1 version that the caller knows, 2 most changes, 3 jar, 4 packed list of domains of it that the caller wants whatever
--       changed, 5 packed list of domains of it that it wants if they changed.
-- Returns packed {version now, {{jar, domain} ..} changed since or nil if there are too many, {domain, packed cookies or '', ..}}.
local known, most, jar = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local key = P .. 'cookies:' .. (redis.call('HGET', STATE, 'generation') or 0) .. ':' .. jar
local version = tonumber(redis.call('HGET', STATE, 'cookies') or 0)
local changes, wanted = {}, cmsgpack.unpack(ARGV[4])
if version > known then
  for _, packed in ipairs(redis.call('ZRANGEBYSCORE', P .. 'jars', '(' .. known, '+inf', 'LIMIT', 0, most + 1)) do
    changes[#changes + 1] = cmsgpack.unpack(packed)
  end
  if #changes > most then changes = false end
end
local there = {}
for _, change in ipairs(changes or {}) do
  if change[1] == jar then there[change[2]] = true end
end
for _, domain in ipairs(cmsgpack.unpack(ARGV[5])) do
  if not changes or there[domain] then wanted[#wanted + 1] = domain end
end
local found = {}
for i, packed in ipairs(#wanted > 0 and redis.call('HMGET', key, unpack(wanted)) or {}) do
  found[2 * i - 1], found[2 * i] = wanted[i], packed or ''
end
return cmsgpack.pack({version, changes, found})
