--! frontier/base pace
-- Takes note of how far apart requests of a host are to be by its robots.txt. Of several files (http and https) the longest delay
-- counts. The next request is that far from now: the answer that asked for it was a request too.
-- ARGV: 1 host, 2 least time between two requests (us), 3 how long that holds (ms). Returns 1.
local host, floor, us = ARGV[1], tonumber(ARGV[2]), clock()
local now = math.floor(us / 1000)
local record, turns, ends = P .. 'pace:' .. host, P .. 'host:' .. host, now + tonumber(ARGV[3])
local known = redis.call('HMGET', record, 'floor', 'floor_until')
local before = tonumber(known[2] or 0) > now and tonumber(known[1]) or 0
if floor < before then return 1 end
if floor > before then
  local arrival = math.max(tonumber(redis.call('HGET', turns, 't') or 0), us + floor)
  redis.call('HSET', turns, 't', text(arrival))
  redis.call('PEXPIRE', turns, math.ceil((arrival - us) / 1000) + 1)
end
redis.call('HSET', record, 'floor', text(floor), 'floor_until', ends)
slow_until(host, ends, now)
redis.call('HSET', STATE, 'time', text(us))
return 1
