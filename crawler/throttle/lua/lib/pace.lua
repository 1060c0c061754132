-- What slows a host down. pace:<host> HASH, as long as SLOWED says:
--   floor, floor_until       interval (us) that its robots.txt asks for, and until when (ms)
--   wish, since, top         requests a second: what it seems to take, counted from since (us), and at which all is forgotten
--   delay, delay_until       interval (us) that follows from how long its answers take
--   probe, lost              interval (us) of the requests that try whether it works again; 1 if it failed for too long
-- After a host said that it was asked too often it gets less than it seems to take, and then more again: slowly around that, then
-- ever faster, as CUBIC (RFC 9438) does. So a host that takes little is rarely asked too much, and one that takes more again
-- soon gets it.
local limits = redis.call('HMGET', LIMITS, 'default', 'globs', 'named', 'ordered', 'start')
local start = tonumber(limits[5] or 0)  -- interval (us) of hosts of which it is not known yet how long their answers take
local slowing = redis.call('EXISTS', SLOWED) == 1
local KEPT, CUT, CURVE_US = 0.75, 0.55, 9000000
local DEPTH = 1 - CUT / KEPT

-- Requests a second at a time.
local function grown(wish, since, us)
  local x = math.max(0, us - since) / CURVE_US - 1
  return wish * (1 + DEPTH * x * x * x)
end

-- When (us) that reaches a rate.
local function grown_at(wish, since, rate)
  return since + CURVE_US * (1 + math.max(0, (rate / wish - 1) / DEPTH) ^ (1 / 3))
end

-- Keeps what pace:<host> says until a time (ms), or longer where it was longer before.
local function slow_until(host, ends, now)
  redis.call('ZREMRANGEBYSCORE', SLOWED, '-inf', now)
  redis.call('ZADD', SLOWED, 'GT', math.ceil(ends), host)
  redis.call('PEXPIREAT', P .. 'pace:' .. host, redis.call('ZSCORE', SLOWED, host))
end

-- The least interval (us) of a host that is slowed down, or nil; whether it is being tried; whether it is lost.
local function slowest(host, us)
  if not slowing or tonumber(redis.call('ZSCORE', SLOWED, host) or 0) * 1000 <= us then
    if start > 0 then return start, false, false end
    return
  end
  local known = redis.call('HMGET', P .. 'pace:' .. host, 'floor', 'floor_until', 'wish', 'since', 'top', 'delay',
                           'delay_until', 'probe', 'lost')
  local now, interval = us / 1000, tonumber(known[8] or 0)
  if known[1] and tonumber(known[2]) > now then interval = math.max(interval, tonumber(known[1])) end
  if known[3] then
    local rate = grown(tonumber(known[3]), tonumber(known[4]), us)
    if rate < tonumber(known[5]) then interval = math.max(interval, 1010000 / rate) end
  end
  interval = math.max(interval, known[6] and tonumber(known[7]) > now and tonumber(known[6]) or start)
  if interval > 0 then return math.ceil(interval), known[8] and true or false, known[9] and true or false end
end
