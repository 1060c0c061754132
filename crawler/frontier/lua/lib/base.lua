-- Names of the partition's keys, Redis's clock, and what every script shares.
-- KEYS: 1 prefix of the partition, 2 state, 3 hosts, 4 delayed, 5 inflight, 6 lease, 7 suspects, 8 dead, 9 counters,
--       10 workers, 11 idle, 12 wake, 13 feeders, 14 garbage, 15 limits, 16 blocks, 17 slowed, 18 flight, 19 spent,
--       20 session of the caller, 21 leases held by it.
-- The fixed order is redisdb/keys.py's; keys found only inside a script are built from KEYS[1] and share its hash tag.
local P, STATE, HOSTS, DELAYED, INFLIGHT, LEASE = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local SUSPECTS, DEAD, COUNTERS, WORKERS, IDLE, WAKE = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local FEEDERS, GARBAGE, LIMITS, BLOCKS, SLOWED, FLIGHT = KEYS[13], KEYS[14], KEYS[15], KEYS[16], KEYS[17], KEYS[18]
local SPENT, SESSION, HELD = KEYS[19], KEYS[20], KEYS[21]

-- Microseconds since the epoch: Redis's clock, but never before the last time that a script wrote down.
local function clock()
  local t = redis.call('TIME')
  local us = tonumber(t[1]) * 1000000 + tonumber(t[2])
  local last = tonumber(redis.call('HGET', STATE, 'time') or 0)
  if last > us then return last end
  return us
end

local function text(number) return string.format('%.0f', number) end

-- Tells the workers that wait: their watchers see the wake key change.
local function wake()
  if redis.call('EXISTS', IDLE) == 1 then
    redis.call('INCR', WAKE)
    redis.call('PEXPIRE', WAKE, 60000)
    redis.call('DEL', IDLE)
  end
end
