--! base session queue lease
-- Leases entries of hosts whose time has come to the caller, spread over hosts, and tells what the fleet has left.
-- ARGV: 1-3 session, 4 how many at most, 5 lease (ms), 6 room of a host that is not named, then host, room pairs for those
--       on which the caller is busy.
-- Returns packed {'ok', {lease id, host, element, lease id..}, fleet (lib/lease.lua)}.
local want, lease_ms, room = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local rooms, named = {}, 0
for i = 7, #ARGV, 2 do
  rooms[ARGV[i]] = tonumber(ARGV[i + 1])
  named = named + 1
end
-- Where another program gave a key a wrong type, the script ends here and not with entries in its hands.
redis.call('ZCARD', HOSTS)
redis.call('HLEN', INFLIGHT)
redis.call('ZCARD', LEASE)
redis.call('SCARD', HELD)
redis.call('HLEN', COUNTERS)
-- A write that a full memory refuses comes first: then nothing is claimed, and no entry is taken out of its queue.
redis.call('HSET', STATE, 'time', text(us))

for _, packed in ipairs(redis.call('ZRANGEBYSCORE', DELAYED, '-inf', now, 'LIMIT', 0, 64)) do
  local it = cmsgpack.unpack(packed)
  push(it[1], it[2], {it[3]}, now, false)
  redis.call('ZREM', DELAYED, packed)
end

local taken = {hosts = {}, bands = {}, elements = {}}
local suspect = redis.call('HGET', SESSION, 'suspect')
if want > 0 and (not suspect or redis.call('HEXISTS', INFLIGHT, suspect) == 0) then
  suspect = nil
  local packed = redis.call('LPOP', SUSPECTS)
  if packed then
    local it = cmsgpack.unpack(packed)
    taken.hosts[1], taken.bands[1], taken.elements[1] = it[1], it[2], it[3]
    suspect = true
  end
end

local hosts, ready = redis.call('ZRANGEBYSCORE', HOSTS, '-inf', now, 'LIMIT', 0, want + named), {}
for _, host in ipairs(hosts) do
  if (rooms[host] or room) > 0 and #ready < want then ready[#ready + 1] = host end
end
local scores, empty = {}, {}
local left, popped = want - #taken.hosts, 0
local share = #ready > 0 and math.ceil(left / #ready) or 0
for _, host in ipairs(ready) do
  local n = math.min(share, left, rooms[host] or room)
  if n > 0 then
    local count, drained = pop(host, n, taken)
    left, popped = left - count, popped + count
    if drained then
      empty[#empty + 1] = host
    else
      scores[#scores + 1] = now
      scores[#scores + 1] = host
    end
  end
end
if popped > 0 then redis.call('HINCRBY', COUNTERS, 'waiting', -popped) end
if #scores > 0 then redis.call('ZADD', HOSTS, unpack(scores)) end
if #empty > 0 then redis.call('ZREM', HOSTS, unpack(empty)) end

local reply = {}
if #taken.hosts > 0 then
  local first = math.max(tonumber(redis.call('HGET', STATE, 'lease') or 0) + 1, us)
  local ids = grant(me, HELD, first, now + lease_ms, taken)
  redis.call('HSET', STATE, 'lease', text(first + #taken.hosts - 1))
  if suspect == true then redis.call('HSET', SESSION, 'suspect', ids[1]) end
  for i, id in ipairs(ids) do
    reply[3 * i - 2], reply[3 * i - 1], reply[3 * i] = id, taken.hosts[i], taken.elements[i]
  end
elseif want > 0 and tonumber(redis.call('HGET', COUNTERS, 'waiting') or 0) == 0 then
  -- Only who could take anything is woken by it: a worker whose hosts are all busy looks again when one is free.
  redis.call('SADD', IDLE, me)
end
return answer({'ok', reply, fleet(now)})
