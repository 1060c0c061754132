-- Caps: how many requests of a host the whole fleet may have under way. A worker has permits of such a host, each for one
-- request at a time, and keeps them while it has requests of the host at hand; flight HASH has their sums, busy:<worker> HASH
-- what each worker has, so that those of a dead one come back.
local PARKED_MS = 250  -- a host without permits left is looked at again; who gives some back makes that at once

local function set_busy(host, old, new)
  if new == old then return end
  local busy = P .. 'busy:' .. me
  if new > 0 then
    redis.call('HSET', busy, host, new)
    redis.call('PEXPIRE', busy, 86400000)
  else
    redis.call('HDEL', busy, host)
  end
  if redis.call('HINCRBY', FLIGHT, host, new - old) <= 0 then redis.call('HDEL', FLIGHT, host) end
  if new < old then redis.call('ZADD', HOSTS, 'XX', 'LT', now, host) end
end

-- Takes the report of a worker, packed {host, permits kept, requests at hand ..} or ''; [host] is what it has then.
local function permits_of(packed)
  local permits, needs, hosts = {}, {}, {}
  local report = packed == '' and {} or cmsgpack.unpack(packed)
  for i = 1, #report, 3 do
    local host, kept = report[i], report[i + 1]
    set_busy(host, tonumber(redis.call('HGET', P .. 'busy:' .. me, host) or 0), kept)
    permits[host], needs[host], hosts[#hosts + 1] = kept, report[i + 2], host
  end

  local self = setmetatable({}, {__index = permits})

  -- Permits that the host can give in addition, of those wanted.
  local function more(host, cap, wanted)
    return math.max(0, math.min(cap - tonumber(redis.call('HGET', FLIGHT, host) or 0), wanted))
  end

  -- How many entries of a host the worker may have: with each permit one to send and one to go on with.
  function self.entries(host, cap, n)
    local have, need = permits[host] or 0, needs[host] or 0
    return 2 * (have + more(host, cap, need + n - have)) - need
  end

  -- Gives permits for entries that were taken, as far as there are some.
  function self.take(host, cap, count)
    if not permits[host] then
      if count == 0 then return end
      permits[host], needs[host], hosts[#hosts + 1] = 0, 0, host
    end
    needs[host] = needs[host] + count
    local have = permits[host]
    permits[host] = have + more(host, cap, needs[host] - have)
    set_busy(host, have, permits[host])
  end

  -- Adds hosts of which the worker has permits and that wait for nothing else: they may be parked for others.
  function self.add_waiting(ready, most)
    local there = {}
    for _, host in ipairs(ready) do there[host] = true end
    for _, host in ipairs(hosts) do
      if #ready >= most then return end
      if permits[host] > 0 and not there[host] and redis.call('ZSCORE', HOSTS, host) then ready[#ready + 1] = host end
    end
  end

  -- {host, permits ..} of all that the worker named or got some of; -1 where the host has no cap any more.
  function self.reply()
    local reply = {}
    for _, host in ipairs(hosts) do
      local rule = rule_of(host)
      if not rule or rule[6] == 0 then
        set_busy(host, permits[host], 0)
        permits[host] = -1
      else
        self.take(host, rule[6], 0)
      end
      reply[#reply + 1], reply[#reply + 2] = host, permits[host]
    end
    return reply
  end
  return self
end
