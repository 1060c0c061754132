--! frontier/base pace
-- Takes note that a host does not work: refused, not found, silent, or a status of 5xx. After some such answers with no good
-- one between, its circuit opens: nobody asks it for a while, then one request tries it, and until that is answered well
-- it opens for longer each time. When that has gone on for long enough it counts as lost for ten minutes: its URLs come out of
-- the frontier to be given up.
-- ARGV: 1 host, 2 age of the request that failed (ms), 3 age of the last request that the host answered well (ms) or -1,
--       4 failures at which it opens, 5 first time that it is open (ms; it doubles), 6 longest (ms), 7 how long it may fail
--       until it is lost (ms).
-- failing:<host> HASH: failed us of the last failure, since us of the first in the row, fails in a row, opened us at which the
-- circuit opened last, ends us at which it may be tried, opens in a row; forgotten ten minutes after what it says is over.
-- Returns packed {ms until the host may be asked, 1 if this opened the circuit, 2 if the host is lost}.
local us = clock()
local now = math.floor(us / 1000)
local host, sent, well = ARGV[1], us - tonumber(ARGV[2]) * 1000, tonumber(ARGV[3])
local key = P .. 'failing:' .. host
local known = redis.call('HMGET', key, 'failed', 'fails', 'ends', 'opens', 'since')
local since = tonumber(known[5] or us)
local fails, opens = tonumber(known[2] or 0), tonumber(known[4] or 0)
if well >= 0 and us - well * 1000 > tonumber(known[1] or 0) then fails, opens, since = 0, 0, us end
local opened = 0
-- What was sent before the circuit opened belongs to that, and what was sent later by those who had not heard of it yet.
if sent >= tonumber(known[3] or 0) then
  fails = fails + 1
  redis.call('HSET', key, 'failed', text(us), 'fails', fails, 'since', text(since))
  local wait = 0
  if fails >= tonumber(ARGV[4]) or opens > 0 then
    local lost = us - since >= tonumber(ARGV[7]) * 1000
    opened = lost and 2 or 1
    wait = math.ceil(math.min(tonumber(ARGV[5]) * 2 ^ opens, tonumber(ARGV[6])) * (1 + us % 997 / 9970))
    redis.call('HSET', key, 'opened', text(us), 'ends', text(us + wait * 1000), 'opens', opens + 1)
    redis.call('ZREMRANGEBYSCORE', BLOCKS, '-inf', now)
    redis.call('ZADD', BLOCKS, 'GT', now + wait, host)
    redis.call('HSET', P .. 'pace:' .. host, 'probe', text(math.max(wait, 1000) * 1000))
    -- No request of before may count for the one that tries it.
    redis.call('HDEL', P .. 'host:' .. host, 't')
    if lost then
      redis.call('HSET', P .. 'pace:' .. host, 'lost', 1)
      redis.call('ZREM', BLOCKS, host)
      redis.call('ZADD', HOSTS, 'XX', now, host)
      wake()
    end
    slow_until(host, now + 3 * wait + 600000, now)
  end
  redis.call('PEXPIRE', key, 3 * wait + 600000)
end
redis.call('HSET', STATE, 'time', text(us))
local ends = tonumber(redis.call('ZSCORE', BLOCKS, host) or 0)
return cmsgpack.pack({math.max(0, ends - now), opened})
