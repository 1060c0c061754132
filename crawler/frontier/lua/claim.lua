--! base session queue lease throttle/host
-- Leases entries of hosts whose time has come to the caller, spread over hosts, and tells what the fleet has left. A host
-- with a rule gives an entry for each turn that is no further ahead than the caller may hold one.
-- ARGV: 1-3 session, 4 how many at most, 5 lease (ms), 6 how far ahead a turn may be (us), 7 room of a host that is not
--       named, then host, room pairs for those on which the caller is busy.
-- Returns packed {'ok', {lease id, host, element, lease id..}, fleet (lib/lease.lua), {number of an entry that has a
--       turn, wait (ms), slack (ms), mark (throttle/lib/host.lua), number..}, ms until the next host's turn can be taken, or -1}.
local want, lease_ms, ahead, room = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local rooms, named = {}, 0
for i = 8, #ARGV, 2 do
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
local paced, due = {}, -1

local function has_turn(number, at, rule, mark)
  local n = #paced
  paced[n + 1], paced[n + 2] = number, math.max(0, math.ceil((at - us) / 1000))
  paced[n + 3], paced[n + 4] = rule[5], mark
end

-- Takes at most n entries of a host that has a rule, each for a turn. Returns how many, whether none are left, and the ms at
-- which the host is to be looked at again.
local function pop_paced(host, rule, n)
  local turns, times, marks = turns_of(host, rule, us), {}, {}
  local at = turns.next()
  while #times < n and at <= us + ahead do
    times[#times + 1] = at
    turns.take()
    marks[#times] = turns.mark()
    at = turns.next()
  end
  local first, count, drained = #taken.elements, 0, false
  if #times > 0 then
    count, drained = pop(host, #times, taken)
    if count < #times then
      turns = turns_of(host, rule, us)
      for _ = 1, count do turns.take() end
    end
    if count > 0 then turns.keep(us) end
    at = turns.next()
  end
  for i = 1, count do
    has_turn(first + i, times[i], rule, marks[i])
  end
  return count, drained, math.max(now, math.ceil((at - ahead) / 1000))
end

-- Whether the first suspect's turn has come; it is taken then. One whose turn is far lets the others go first.
local function suspect_ready()
  local packed = limited and redis.call('LINDEX', SUSPECTS, 0)
  local host = packed and cmsgpack.unpack(packed)[1]
  local rule = host and rule_of(host)
  local turns = rule and turns_of(host, rule, us)
  local at = turns and turns.next() or host and blocked_until(host) * 1000 or 0
  if at > us + ahead or not rule and at > us then
    redis.call('LMOVE', SUSPECTS, SUSPECTS, 'LEFT', 'RIGHT')
    due = math.ceil((at - us - (rule and ahead or 0)) / 1000)
    return false
  end
  if not rule then return true end
  turns.take()
  turns.keep(us)
  has_turn(1, at, rule, turns.mark())
  return true
end

local suspect = redis.call('HGET', SESSION, 'suspect')
if want > 0 and (not suspect or redis.call('HEXISTS', INFLIGHT, suspect) == 0) then
  suspect = nil
  local packed = suspect_ready() and redis.call('LPOP', SUSPECTS)
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
    local rule, count, drained, again = limited and rule_of(host), 0, false, now
    if rule then
      count, drained, again = pop_paced(host, rule, n)
    elseif limited and blocked_until(host) > now then
      again = blocked_until(host)
    else
      count, drained = pop(host, n, taken)
    end
    left, popped = left - count, popped + count
    if drained then
      empty[#empty + 1] = host
    else
      scores[#scores + 1] = again
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
if limited then
  local next_host = redis.call('ZRANGEBYSCORE', HOSTS, '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if next_host[2] and (due < 0 or tonumber(next_host[2]) - now < due) then due = tonumber(next_host[2]) - now end
end
return answer({'ok', reply, fleet(now), paced, due})
