--! frontier/base pace
-- Takes note of the delay that a host's robots.txt asks for. ARGV: 1 host, 2 interval (us) or 0, 3 how long it holds (ms).
-- Returns 1.
local host, now = ARGV[1], math.floor(clock() / 1000)
local record = P .. 'pace:' .. host
if ARGV[2] == '0' then
  redis.call('HDEL', record, 'floor', 'floor_until')
else
  local ends = now + tonumber(ARGV[3])
  redis.call('HSET', record, 'floor', ARGV[2], 'floor_until', ends)
  slow_until(host, ends, now)
end
return 1
