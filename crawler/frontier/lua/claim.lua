--! base session queue lease throttle/pace throttle/host throttle/cap
-- Leases entries of hosts whose time has come to the caller, spread over hosts, and tells what the fleet has left. A host
-- with a rule gives an entry for each turn that is no further ahead than the caller may hold one; of one with a cap the
-- caller gets permits (throttle/lib/cap.lua), and for each an entry to send and one to go on with.
-- ARGV: 1-3 session, 4 how many at most, 5 lease (ms), 6 how far ahead a turn may be (us), 7 room of a host that is not
--       named, 8 packed {host, permits kept, requests at hand ..} of hosts with a cap or '', then host, room pairs for those
--       on which the caller is busy.
-- Returns packed {'ok', {lease id, host, element, lease id..}, fleet (lib/lease.lua), {number of an entry that has a
--       turn, wait (ms), slack (ms), mark (throttle/lib/host.lua), state, number..}, ms until the next host's turn can be
--       taken, or -1, {host, permits that the caller has now, or -1 for any number ..}}. State: 0 none, 1 the answer tells
--       whether the host works again, 2 an operator refuses the host, 3 it failed for too long.
local want, lease_ms, ahead, room = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local rooms, named_rooms = {}, 0
for i = 9, #ARGV, 2 do
  rooms[ARGV[i]] = tonumber(ARGV[i + 1])
  named_rooms = named_rooms + 1
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

local LOOK_MS = 1000  -- orders of an operator hold within that
local taken = {hosts = {}, bands = {}, elements = {}}
local paced, due = {}, -1
local permits = permits_of(ARGV[8])

local function has_turn(number, at, slack, mark, state)
  local n = #paced
  paced[n + 1], paced[n + 2] = number, math.max(0, math.ceil((at - us) / 1000))
  paced[n + 3], paced[n + 4], paced[n + 5] = slack, mark, state
end

-- Takes at most n entries of a host that gives turns, each for a turn. Returns how many, whether none are left, and the ms at
-- which the host is to be looked at again.
local function pop_paced(host, rule, turns, n)
  local times, marks = {}, {}
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
    has_turn(first + i, times[i], turns.slack, marks[i], turns.probing and 1 or 0)
  end
  return count, drained, math.max(now, math.ceil((at - ahead) / 1000))
end

-- Takes at most n entries of a host in whatever way it may be asked now; returns as pop_paced does.
local function pop_of(host, n)
  local rule, order = rule_of(host)
  if order == 'pause' then return 0, false, now + LOOK_MS end
  local first, count, drained = #taken.elements, 0, false
  local turns = turns_of(host, rule, us)
  if order == 'block' or turns and turns.lost then
    count, drained = pop(host, n, taken)
    for i = 1, count do has_turn(first + i, us, 0, 0, order == 'block' and 2 or 3) end
    return count, drained, now
  end
  local capped = rule and rule[6] > 0
  if capped then
    n = math.min(n, permits.entries(host, rule[6], n))
    if n <= 0 then return 0, false, now + PARKED_MS end
  end
  local again = now
  if turns then
    count, drained, again = pop_paced(host, rule, turns, n)
  elseif blocked_until(host) > now then
    again = blocked_until(host)
  else
    count, drained = pop(host, n, taken)
  end
  if capped then permits.take(host, rule[6], count) end
  return count, drained, again
end

-- Whether the first suspect may be asked for now; it has its turn then. One that may not lets the others go first.
local function suspect_ready()
  local packed = limited and redis.call('LINDEX', SUSPECTS, 0)
  if not packed then return true end
  local host = cmsgpack.unpack(packed)[1]
  local rule, order = rule_of(host)
  local turns, at = turns_of(host, rule, us), us
  if order == 'block' or turns and turns.lost then
    has_turn(1, us, 0, 0, order == 'block' and 2 or 3)
    return true
  end
  if order == 'pause' then
    at = us + LOOK_MS * 1000
  elseif rule and rule[6] > 0 and permits.entries(host, rule[6], 1) <= 0 then
    at = us + PARKED_MS * 1000
  elseif turns then
    at = turns.next() - ahead
  else
    at = blocked_until(host) * 1000
  end
  if at > us then
    redis.call('LMOVE', SUSPECTS, SUSPECTS, 'LEFT', 'RIGHT')
    due = math.ceil((at - us) / 1000)
    return false
  end
  if turns then
    at = turns.next()
    turns.take()
    turns.keep(us)
    has_turn(1, at, turns.slack, turns.mark(), turns.probing and 1 or 0)
  end
  if rule and rule[6] > 0 then permits.take(host, rule[6], 1) end
  return true
end

local suspect = redis.call('HGET', SESSION, 'suspect')
if want > 0 and (not suspect or redis.call('HEXISTS', INFLIGHT, suspect) == 0) then
  suspect = nil
  local packed = redis.call('EXISTS', SUSPECTS) == 1 and suspect_ready() and redis.call('LPOP', SUSPECTS)
  if packed then
    local it = cmsgpack.unpack(packed)
    taken.hosts[1], taken.bands[1], taken.elements[1] = it[1], it[2], it[3]
    suspect = true
  end
end

local hosts, ready = redis.call('ZRANGEBYSCORE', HOSTS, '-inf', now, 'LIMIT', 0, want + named_rooms), {}
for _, host in ipairs(hosts) do
  if (permits[host] or (rooms[host] or room) > 0) and #ready < want then ready[#ready + 1] = host end
end
permits.add_waiting(ready, want)
local scores, empty = {}, {}
local left, popped = want - #taken.hosts, 0
local share = #ready > 0 and math.ceil(left / #ready) or 0
for _, host in ipairs(ready) do
  local n = math.min(share, left, permits[host] and left or rooms[host] or room)
  if n > 0 then
    local count, drained, again
    if limited then
      count, drained, again = pop_of(host, n)
    else
      count, drained = pop(host, n, taken)
      again = now
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
if popped == 0 and #hosts == want + named_rooms then
  due = 0  -- All that were looked at are at their cap; behind them others may wait.
elseif limited then
  local next_host = redis.call('ZRANGEBYSCORE', HOSTS, '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if next_host[2] and (due < 0 or tonumber(next_host[2]) - now < due) then due = tonumber(next_host[2]) - now end
end
return answer({'ok', reply, fleet(now), paced, due, permits.reply()})
