--! frontier/base pace host
-- Takes note that a host asked for patience: nobody asks it again until its block is over, and less often than before after
-- that (lib/pace.lua). A block only grows.
-- ARGV: 1 host, 2 the wait that it asked for (ms) or -1, 3 age of the request that it answered (ms), 4 first wait of a host
--       that names none (ms; it doubles with each event; 0: only waits that are named count), 5 longest of those (ms),
--       6 longest wait that a host may ask for (ms), 7 age of the last request that it answered well (ms) or -1,
--       8 how often the caller asked it of late (requests in 1,000 s).
-- heard:<host> HASH: ends us at which the wait of the last event ends, count events in a row with no good answer between; forgotten when twice the
-- wait went by after it.
-- What was sent before that belongs to the event: eight answers at once are one, also those to who had not heard of it yet.
-- Returns packed {ms until the host may be asked, 1 if this was a new event}.
local us = clock()
local now = math.floor(us / 1000)
local host, asked, age = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local first, longest, most = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local key = P .. 'heard:' .. host
local known = redis.call('HMGET', key, 'ends', 'count')
local new = us - age * 1000 >= tonumber(known[1] or 0)
local well = tonumber(ARGV[7])
local count = tonumber(known[2] or 0) + (new and 1 or 0)
if new and well >= 0 and us - well * 1000 >= tonumber(known[1] or 0) then count = 1 end
-- Jitter of a tenth, from the clock's last digits: Redis seeds Lua's generator alike for each script.
local wait = math.min(first * 2 ^ (count - 1), longest) * (1 + us % 997 / 9970)
if asked >= 0 then
  wait = math.min(asked, most)
elseif not new then
  wait = 0
end
wait = math.ceil(wait)

-- The rate at which it was asked: that of its rule or to which it was slowed, else the caller's with as much of each other worker.
-- A first refusal of a host that the caller has hardly asked yet tells nothing of its rate.
local function slow_down()
  local rule, record = rule_of(host), P .. 'pace:' .. host
  local own = rule and rule[2] > 0 and (rule[1] == 't' and 1 or rule[3]) * 1e6 / rule[2]
  local slowed = redis.call('HMGET', record, 'wish', 'since', 'top')
  local rate, top = own, own
  if slowed[1] then
    rate = math.min(grown(tonumber(slowed[1]), tonumber(slowed[2]), us), own or 1e9)
    top = own or tonumber(slowed[3])
  elseif not own then
    if not known[1] and tonumber(ARGV[8]) <= 1000 then return end
    rate = math.max(1, tonumber(ARGV[8]) / 1000 * math.max(1, redis.call('ZCARD', WORKERS)))
    top = 10 * rate
  end
  local wish, since = math.max(0.01, KEPT * rate), us + wait * 1000
  redis.call('HSET', record, 'wish', wish, 'since', text(since), 'top', top)
  slow_until(host, grown_at(wish, since, top) / 1000, now)
end

if new then
  redis.call('HSET', key, 'ends', text(us + wait * 1000), 'count', count)
  redis.call('PEXPIRE', key, 3 * math.max(wait, first, 1))
  if first > 0 then slow_down() end
end
if wait > 0 then
  redis.call('ZREMRANGEBYSCORE', BLOCKS, '-inf', now)
  redis.call('ZADD', BLOCKS, 'GT', now + wait, host)
end
redis.call('HSET', STATE, 'time', text(us))
local ends = tonumber(redis.call('ZSCORE', BLOCKS, host) or 0)
return cmsgpack.pack({math.max(0, ends - now), new and 1 or 0})
