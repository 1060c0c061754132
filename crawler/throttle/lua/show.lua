--! frontier/base pace host
-- Shows an operator what holds for hosts.
-- ARGV: hosts. Returns packed {{host, URLs waiting, ms until it is looked at or -1, ms that it is blocked, order or '', interval
--       (us) of what slows it down, 1 if its circuit is being tried, failures in a row, under way or -1, cap, strategy or '',
--       interval or window (us), burst} ..}.
local us = clock()
local now = math.floor(us / 1000)
local reply = {}
for i, host in ipairs(ARGV) do
  local rule, order = rule_of(host)
  local interval, probing = slowest(host, us)
  local waiting = redis.call('LLEN', P .. 'q:' .. host .. ':0')
  for _, band in ipairs(redis.call('ZRANGE', P .. 'prio:' .. host, 0, 99)) do
    waiting = waiting + redis.call('LLEN', P .. 'q:' .. host .. ':' .. band)
  end
  local at = redis.call('ZSCORE', HOSTS, host)
  rule = rule or {'', 0, 0, 0, 0, 0}
  reply[i] = {host, waiting, at and math.max(0, tonumber(at) - now) or -1, math.max(0, blocked_until(host) - now), order or '',
              interval or 0, probing and 1 or 0, tonumber(redis.call('HGET', P .. 'failing:' .. host, 'fails') or 0),
              tonumber(redis.call('HGET', FLIGHT, host) or (rule[6] > 0 and 0 or -1)), rule[6], rule[1], rule[2], rule[3]}
end
return cmsgpack.pack(reply)
