-- Leases: lease id -> {worker, host, band, element}. Ids grow with Redis's clock and so stay above those of a crawl whose
-- keys were lost; they fence late workers and order the fetches of a page in storage.
local function grant(worker, held, first, expires, taken)
  local hash, due, ids = {}, {}, {}
  for i, element in ipairs(taken.elements) do
    local id = text(first + i - 1)
    ids[i] = id
    hash[2 * i - 1], hash[2 * i] = id, cmsgpack.pack({worker, taken.hosts[i], taken.bands[i], element})
    due[2 * i - 1], due[2 * i] = expires, id
  end
  redis.call('HSET', INFLIGHT, unpack(hash))
  redis.call('ZADD', LEASE, unpack(due))
  redis.call('SADD', held, unpack(ids))
  return ids
end

-- Ends leases that still run: returns their records by id; ids that are not there are the stale ones.
local function release(ids, held)
  if #ids == 0 then return {}, {} end
  local found, stale, live = {}, {}, {}
  local packed = redis.call('HMGET', INFLIGHT, unpack(ids))
  for i, id in ipairs(ids) do
    if packed[i] then
      found[id] = cmsgpack.unpack(packed[i])
      live[#live + 1] = id
    else
      stale[#stale + 1] = id
    end
  end
  if #live > 0 then
    redis.call('HDEL', INFLIGHT, unpack(live))
    redis.call('ZREM', LEASE, unpack(live))
    if held then redis.call('SREM', held, unpack(live)) end
  end
  return found, stale
end

-- The same where nobody needs the records: returns the stale ids.
local function drop(ids, held)
  if #ids == 0 then return {} end
  local stale, live = {}, {}
  for i, expiry in ipairs(redis.call('ZMSCORE', LEASE, unpack(ids))) do
    if expiry then live[#live + 1] = ids[i] else stale[#stale + 1] = ids[i] end
  end
  if #live > 0 then
    redis.call('HDEL', INFLIGHT, unpack(live))
    redis.call('ZREM', LEASE, unpack(live))
    redis.call('SREM', held, unpack(live))
  end
  return stale
end

-- Gives back the permits of a worker that is gone (throttle/lib/cap.lua).
local function forget_busy(worker)
  local busy = P .. 'busy:' .. worker
  local had = redis.call('HGETALL', busy)
  for i = 1, #had, 2 do
    if redis.call('HINCRBY', FLIGHT, had[i], -had[i + 1]) <= 0 then redis.call('HDEL', FLIGHT, had[i]) end
  end
  redis.call('DEL', busy)
end

-- What the fleet has left; a worker decides from it whether the crawl is at its end.
local function fleet(at)
  local c = redis.call('HMGET', COUNTERS, 'waiting', 'done', 'dead')
  local s = redis.call('HMGET', STATE, 'start', 'phase', 'active', 'cookies')
  local due = redis.call('ZRANGE', DELAYED, 0, 0, 'WITHSCORES')
  local feeding = 0
  for _, feeder in ipairs(redis.call('SRANDMEMBER', FEEDERS, 16)) do
    if tonumber(redis.call('ZSCORE', WORKERS, feeder) or 0) > at then feeding = feeding + 1 end
  end
  return {tonumber(c[1] or 0), redis.call('ZCARD', DELAYED), redis.call('HLEN', INFLIGHT), redis.call('LLEN', SUSPECTS),
          s[1] or '', s[2] or '', at - tonumber(s[3] or at), tonumber(due[2] or 0) - at, feeding,
          redis.call('SCARD', FEEDERS), tonumber(s[4] or 0)}
end
