--! base queue lease
-- Gives back the leases of workers whose heartbeat lapsed and those that ran out.
-- ARGV: 1 tick (ms), 2 lapse (ms), 3 most leases a call, 4 deaths as the sole suspect at which an entry is a dead letter.
-- Returns packed {leases given back, dead letters, 1 if more is left, 1 if old generations are to be swept}.
-- After an outage (the last tick is older than half a lapse) nobody is reaped for one lapse: all workers look lapsed then.
-- Not in ticks: a large fleet's members tick less often than the caller's tick says, and would seem to have outages.
-- Only the sole suspect of a dead worker is blamed; without one, all that it held become suspects, which are handed out one
-- a worker at a time.
redis.call('ZREM', WORKERS, '')
local us = clock()
local now = math.floor(us / 1000)
local tick, lapse, limit, deaths_max = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local known = redis.call('HMGET', STATE, 'reaped', 'grace')
local last, grace = tonumber(known[1] or 0), tonumber(known[2] or 0)
if now - last < tick / 2 then return cmsgpack.pack({0, 0, 0, 0}) end
redis.call('HSET', STATE, 'reaped', now, 'time', text(us))
if now - last > lapse / 2 and last > 0 then
  grace = now + lapse
  redis.call('HSET', STATE, 'grace', grace)
end
if now < grace then return cmsgpack.pack({0, 0, 0, 0}) end

local returned, letters, more = 0, 0, 0

local function bury(lease, deaths)
  redis.call('XADD', DEAD, '*', 'kind', 'page', 'reason', 'its worker died ' .. deaths .. ' times while it held this page alone',
             'class', 'worker_death', 'worker', lease[1], 'host', lease[2], 'band', lease[3], 'element', lease[4])
  redis.call('HINCRBY', COUNTERS, 'dead', 1)
  letters = letters + 1
end

local function give_back(ids, suspect)
  local found = release(ids, nil)
  for id, lease in pairs(found) do
    returned = returned + 1
    local deaths = string.byte(lease[4], 2)
    if suspect and id ~= suspect then
      push(lease[2], lease[3], {delivered(lease[4])}, now, true)
    elseif deaths >= deaths_max and suspect then
      bury(lease, deaths)
    else
      redis.call('RPUSH', SUSPECTS, cmsgpack.pack({lease[2], lease[3], delivered(lease[4], math.max(1, suspect and deaths + 1 or deaths))}))
    end
  end
end

for _, worker in ipairs(redis.call('ZRANGEBYSCORE', WORKERS, '-inf', now, 'LIMIT', 0, 4)) do
  local held, session = P .. 'held:' .. worker, P .. 'session:' .. worker
  local suspect = redis.call('HGET', session, 'suspect')
  if suspect and redis.call('SISMEMBER', held, suspect) == 0 then suspect = nil end
  local ids = {}
  for _, id in ipairs(redis.call('SRANDMEMBER', held, limit)) do
    if id ~= suspect then ids[#ids + 1] = id end
  end
  if #ids < limit and suspect then ids[#ids + 1] = suspect end
  give_back(ids, suspect)
  if #ids > 0 then redis.call('SREM', held, unpack(ids)) end
  if redis.call('EXISTS', held) == 0 then
    redis.call('ZREM', WORKERS, worker)
    redis.call('DEL', session)
    forget_busy(worker)
    redis.call('SREM', IDLE, worker)
  else
    more = 1
  end
end

local expired = redis.call('ZRANGEBYSCORE', LEASE, '-inf', now, 'LIMIT', 0, limit)
if #expired > 0 then
  for i, packed in ipairs(redis.call('HMGET', INFLIGHT, unpack(expired))) do
    if packed then redis.call('SREM', P .. 'held:' .. cmsgpack.unpack(packed)[1], expired[i]) end
  end
  give_back(expired, nil)
end
if #expired == limit then more = 1 end
if returned > 0 then wake() end
if returned > 0 then redis.call('HINCRBY', COUNTERS, 'returned', returned) end

return cmsgpack.pack({returned, letters, more, redis.call('EXISTS', GARBAGE)})
