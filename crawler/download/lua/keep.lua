--! frontier/base
-- Keeps cookies of one jar for the whole fleet: those given replace what there was of that path and name.
-- ARGV: 1 jar, 2 lifetime (ms), 3 most cookies of a domain, then domain, packed list of cookies .. (download/cookies.py); one
--       whose value is nil goes.
-- cookies:<generation>:<jar> HASH domain -> packed list of cookies, oldest first; jars ZSET packed {jar, domain} -> version of its last change.
-- Both are forgotten a lifetime after the last change.
-- Returns the version of the change, which state's field cookies has too; 0 if there was none.
local NAME, VALUE, PATH, EXPIRES = 1, 2, 3, 4
local jar, lifetime, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local key, changed = P .. 'cookies:' .. (redis.call('HGET', STATE, 'generation') or 0) .. ':' .. jar, P .. 'jars'
local seconds = clock() / 1000000

local function merged(packed, given)
  local places, found = {}, {}
  local function place(cookie) return cookie[PATH] .. '\0' .. cookie[NAME] end
  for _, cookie in ipairs(given) do places[place(cookie)] = true end
  for _, cookie in ipairs(packed and cmsgpack.unpack(packed) or {}) do
    if not places[place(cookie)] then found[#found + 1] = cookie end
  end
  for _, cookie in ipairs(given) do
    if cookie[VALUE] then found[#found + 1] = cookie end
  end
  local kept = {}
  for _, cookie in ipairs(found) do
    if cookie[EXPIRES] == 0 or cookie[EXPIRES] > seconds then kept[#kept + 1] = cookie end
  end
  while #kept > most do table.remove(kept, 1) end
  return kept
end

local version = 0
for i = 4, #ARGV, 2 do
  local domain, before = ARGV[i], redis.call('HGET', key, ARGV[i])
  local cookies = merged(before, cmsgpack.unpack(ARGV[i + 1]))
  local after = cmsgpack.pack(cookies)
  if #cookies > 0 and after ~= before or #cookies == 0 and before then
    if version == 0 then version = redis.call('HINCRBY', STATE, 'cookies', 1) end
    if #cookies > 0 then redis.call('HSET', key, domain, after) else redis.call('HDEL', key, domain) end
    redis.call('ZADD', changed, version, cmsgpack.pack({jar, domain}))
  end
end
if version > 0 then
  redis.call('PEXPIRE', key, lifetime)
  redis.call('PEXPIRE', changed, lifetime)
end
return version
