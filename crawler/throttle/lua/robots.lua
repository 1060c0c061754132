--! frontier/base
-- Tells what the fleet knows of robots.txt of sites. What nobody knows the caller is to fetch; others wait until it has, or
-- has not asked for longer than it may hold that.
-- robots:<site> HASH: kind 'rules' or 'free' (all is allowed), body its text compressed, set ms since and fresh ms until which
-- that counts; of one that cannot be had reason, since ms of the first failure, count of failures, again ms at which it may be
-- asked; holder who fetches, hold ms until which.
-- ARGV: 1 caller, 2 how long it may hold a fetch (ms), then sites.
-- Returns packed {state, text, ms, ms ..} in that order: 'rules' or 'free', body, how long that counts, its age; 'failed', reason,
--       until it may be asked again, since the first failure; 'wait', '', how long others hold it, 0; 'fetch', '', 0, 0.
local me, hold = ARGV[1], tonumber(ARGV[2])
local us = clock()
local now = math.floor(us / 1000)
local reply, held = {}, false

local function look(key)
  local it = redis.call('HMGET', key, 'kind', 'body', 'set', 'fresh', 'reason', 'since', 'again', 'holder', 'hold')
  local fresh, again = tonumber(it[4] or 0), tonumber(it[7] or 0)
  if it[1] and math.max(fresh, again) > now then
    -- What is too old counts as long as nothing newer can be had (RFC 9309, 2.4).
    return it[1], it[2] or '', math.max(fresh, again) - now, now - tonumber(it[3])
  end
  if again > now then return 'failed', it[5], again - now, now - tonumber(it[6]) end
  if it[8] and it[8] ~= me and tonumber(it[9]) > now then return 'wait', '', tonumber(it[9]) - now, 0 end
  redis.call('HSET', key, 'holder', me, 'hold', now + hold)
  if redis.call('PTTL', key) < hold then redis.call('PEXPIRE', key, hold) end
  held = true
  return 'fetch', '', 0, 0
end

for i = 3, #ARGV do
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = look(P .. 'robots:' .. ARGV[i])
end
if held then redis.call('HSET', STATE, 'time', text(us)) end
return cmsgpack.pack(reply)
