--! frontier/base pace host
-- Takes note of what answers cost: their time slows a host down as AutoThrottle does, their bytes use up its byte rate.
-- ARGV: 1 requests that a host should have under way on average (0: their time does not count), 2 longest interval (us),
--       then host, mean time of its answers (us), how many, 1 if all were good, bytes .. for each host.
-- The interval is time / target, halfway from the last one each time, and never shorter after a bad answer.
local KEPT_MS = 600000
local us = clock()
local now = math.floor(us / 1000)
local target, longest = tonumber(ARGV[1]), tonumber(ARGV[2])

-- The first answers of a host tell how far apart its next request may be from the last.
local function begin(host, rule, delay)
  local key = P .. 'host:' .. host
  local arrival = redis.call('HGET', key, 't')
  local own = rule and rule[1] == 't' and rule[2] or 0
  local sooner = math.max(start, own) - math.max(delay, own)
  if arrival and sooner > 0 then
    redis.call('HSET', key, 't', text(tonumber(arrival) - sooner))
    redis.call('ZADD', HOSTS, 'XX', now, host)
  end
end

for i = 3, #ARGV, 5 do
  local host, bytes = ARGV[i], tonumber(ARGV[i + 4])
  local rule = rule_of(host)
  if target > 0 then
    local record, aim = P .. 'pace:' .. host, tonumber(ARGV[i + 1]) / target
    local known = redis.call('HGET', record, 'delay')
    local last = tonumber(known or aim)
    local delay = math.min(longest, math.max(aim, aim + (last - aim) * 0.5 ^ tonumber(ARGV[i + 2])))
    if ARGV[i + 3] == '1' or delay > last then
      redis.call('HSET', record, 'delay', text(delay), 'delay_until', now + KEPT_MS)
      slow_until(host, now + KEPT_MS, now)
      if not known then begin(host, rule, delay) end
    end
  end
  if rule and rule[1] == 't' and rule[7] > 0 and bytes > 0 then
    local key = P .. 'host:' .. host
    local arrival = math.max(us, tonumber(redis.call('HGET', key, 't') or 0)) + bytes * 1e6 / rule[7]
    redis.call('HSET', key, 't', text(arrival))
    redis.call('PEXPIRE', key, math.ceil((arrival - us) / 1000) + 1)
  end
end
redis.call('HSET', STATE, 'time', text(us))
return 1
