--! frontier/base
-- Takes note of how fetches of robots.txt went (robots.lua has the keys). A host whose robots.txt cannot be had is blocked until
-- it may be asked again, unless an older one counts meanwhile or it could not be had for so long that its pages are given up.
-- ARGV: 1 caller, 2 how long one counts (ms), 3 first wait after a failure (ms; it doubles with each), 4 longest wait (ms),
--       5 age of a failure at which pages are given up (ms), then site, host, kind ('rules', 'free' or 'failed'), body or reason.
-- Returns packed {ms that the host is blocked, 0 if it is not, or -1 where another worker has taken the fetch over ..}.
local me, lasts = ARGV[1], tonumber(ARGV[2])
local first, longest, most = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local us = clock()
local now = math.floor(us / 1000)

local function keep(key, kind, body)
  redis.call('HDEL', key, 'holder', 'hold', 'reason', 'since', 'count', 'again')
  redis.call('HSET', key, 'kind', kind, 'body', body, 'set', now, 'fresh', now + lasts)
  redis.call('PEXPIRE', key, 2 * lasts)
  return 0
end

local function fail(key, host, reason)
  local known = redis.call('HMGET', key, 'since', 'count', 'kind')
  local since, count = tonumber(known[1] or now), tonumber(known[2] or 0) + 1
  local wait = math.min(first * 2 ^ (count - 1), longest)
  local left = most - (now - since)
  if left > 0 then wait = math.min(wait, math.max(left, first)) end
  wait = math.ceil(wait)
  redis.call('HDEL', key, 'holder', 'hold')
  redis.call('HSET', key, 'reason', reason, 'since', since, 'count', count, 'again', now + wait)
  -- Forgotten where nobody asks for long after it may be asked again.
  redis.call('PEXPIRE', key, math.max(redis.call('PTTL', key), 3 * wait, 60000))
  if known[3] or left <= 0 then return 0 end
  redis.call('ZREMRANGEBYSCORE', BLOCKS, '-inf', now)
  redis.call('ZADD', BLOCKS, 'GT', now + wait, host)
  return wait
end

local reply = {}
for i = 6, #ARGV, 4 do
  local key, wait = P .. 'robots:' .. ARGV[i], -1
  if redis.call('HGET', key, 'holder') == me then
    if ARGV[i + 2] == 'failed' then
      wait = fail(key, ARGV[i + 1], ARGV[i + 3])
    else
      wait = keep(key, ARGV[i + 2], ARGV[i + 3])
    end
  end
  reply[#reply + 1] = wait
end
redis.call('HSET', STATE, 'time', text(us))
return cmsgpack.pack(reply)
