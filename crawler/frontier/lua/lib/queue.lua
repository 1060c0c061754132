-- Waiting entries: per host one list per priority band, oldest first. An element is two header bytes (times delivered
-- before, deaths of workers it is suspected of) and the entry's body, which scripts never read.
-- Band 0 has its list alone; other bands are indexed in prio:<host>, so that one-priority hosts cost one key.
local function queue_key(host, band) return P .. 'q:' .. host .. ':' .. band end

local function delivered(element, deaths)
  local times = math.min(string.byte(element, 1) + 1, 255)
  return string.char(times, math.min(deaths or string.byte(element, 2), 255)) .. string.sub(element, 3)
end

-- Puts elements into the queue of a host: at its end, or with front = true before all others, keeping their order.
local function push(host, band, elements, at, front)
  local key = queue_key(host, band)
  if front then
    for i = #elements, 1, -1 do redis.call('LPUSH', key, elements[i]) end
  else
    redis.call('RPUSH', key, unpack(elements))
  end
  if band ~= '0' then redis.call('ZADD', P .. 'prio:' .. host, band, band) end
  redis.call('ZADD', HOSTS, 'NX', at, host)
  redis.call('HINCRBY', COUNTERS, 'waiting', #elements)
end

-- The same for many hosts, at the end of their queues: host -> band -> elements.
local function push_all(queues, count, at)
  local hosts = {}
  for host, bands in pairs(queues) do
    hosts[#hosts + 1] = at
    hosts[#hosts + 1] = host
    for band, elements in pairs(bands) do
      redis.call('RPUSH', queue_key(host, band), unpack(elements))
      if band ~= '0' then redis.call('ZADD', P .. 'prio:' .. host, band, band) end
    end
  end
  redis.call('ZADD', HOSTS, 'NX', unpack(hosts))
  redis.call('HINCRBY', COUNTERS, 'waiting', count)
end

-- Gives back an entry that was handed out: to the front of its queue, or of the suspects if it is one.
local function hand_back(host, band, element, at)
  if string.byte(element, 2) > 0 then
    redis.call('LPUSH', SUSPECTS, cmsgpack.pack({host, band, delivered(element)}))
  else
    push(host, band, {delivered(element)}, at, true)
  end
end

-- Takes at most n elements of a host, highest band first, into the lists of taken. Empty queues leave the index. Returns how many
-- and whether the host has none left; to count them off is the caller's.
local function pop(host, n, taken)
  local bands = redis.call('ZREVRANGE', P .. 'prio:' .. host, 0, -1)
  local at = #bands + 1
  for i = 1, #bands do
    if tonumber(bands[i]) < 0 then at = i break end
  end
  table.insert(bands, at, '0')
  local count, drained = 0, 0
  for _, band in ipairs(bands) do
    if count == n then break end
    local got = redis.call('LPOP', queue_key(host, band), n - count)
    local size = got and #got or 0
    local from = #taken.elements
    for i = 1, size do
      taken.elements[from + i], taken.bands[from + i], taken.hosts[from + i] = got[i], band, host
    end
    if size < n - count then
      drained = drained + 1
      if band ~= '0' then redis.call('ZREM', P .. 'prio:' .. host, band) end
    end
    count = count + size
  end
  return count, drained == #bands
end
