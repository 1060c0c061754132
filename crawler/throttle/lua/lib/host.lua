-- When a host may be asked. host:<host> HASH: t theoretical arrival time of its next request (us), w and c window and
-- requests in it; turns:<host> LIST of the last turns of a sliding window, newest first. All expire when they tell nothing
-- any more.
-- A rule is packed {strategy, interval or window (us), burst, jitter, slack (ms), cap, bytes a second}; an empty one is no
-- limit, strategy 'n' one without a rate. An order of an operator is packed {'pause'}, {'block'} or {'slow', rule}.
-- Token bucket: the generic cell rate algorithm (ITU-T I.371) as a virtual schedule. With it requests take turns that may
-- lie ahead of now.
local blocking = redis.call('EXISTS', BLOCKS) == 1
local limited = (limits[1] or limits[2] or limits[3] or limits[4] or limits[5] or blocking or slowing) and true or false
local globs = limits[2] and cmsgpack.unpack(limits[2])
local default = limits[1] and cmsgpack.unpack(limits[1])

-- The first of LIMITS' fields <kind><name> for the host and the domains above it, unpacked.
local function named(kind, host)
  local names, at = {kind .. host}, 1
  while #names < 32 do
    local dot = string.find(host, '.', at, true)
    if not dot then break end
    at = dot + 1
    names[#names + 1] = kind .. string.sub(host, at)
  end
  for _, packed in ipairs(redis.call('HMGET', LIMITS, unpack(names))) do
    if packed then return cmsgpack.unpack(packed) end
  end
end

-- The rule of a host, or nil; and what an operator ordered for it, or nil.
local function rule_of(host)
  local order = limits[4] and named('o:', host)
  if order and order[1] == 'slow' then return order[2], order[1] end
  local rule = limits[3] and named('r:', host)
  if not rule then
    rule = default
    for _, glob in ipairs(globs or {}) do
      if string.find(host, glob[1]) then rule = glob[2] break end
    end
  end
  return rule and rule[1] and rule or nil, order and order[1]
end

-- For each strategy, what a host's next turns are: next() tells when, take() takes one, keep() writes down what was taken.
local strategies = {}

-- Turns of a token bucket: arrival time and interval. The mark of a turn is the arrival time after it; whoever missed the
-- last turn that was given has its mark, and gets the turn again from now on.
function strategies.t(host, rule, from, missed)
  local arrival = tonumber(redis.call('HGET', P .. 'host:' .. host, 't') or 0)
  local early = (rule[3] - 1) * rule[2]
  local turns = {}
  if missed and missed == arrival then arrival = math.min(arrival, from) end
  function turns.mark() return arrival end
  function turns.next() return math.max(from, arrival - early) end
  function turns.take()
    local interval = rule[2]
    if rule[4] > 0 then
      -- Park and Miller's generator; Redis seeds Lua's own alike for each script.
      local draw = (math.max(arrival, from) % 2147483646 + 1) * 16807 % 2147483647 / 2147483647
      draw = draw * 48271 % 1
      interval = interval * (1 + rule[4] * (2 * draw - 1))
    end
    arrival = math.floor(math.max(arrival, turns.next()) + interval)
  end
  function turns.keep(us)
    local key = P .. 'host:' .. host
    redis.call('HSET', key, 't', text(arrival))
    redis.call('PEXPIRE', key, math.ceil(math.max(0, arrival - us) / 1000) + 1)
  end
  return turns
end

-- Turns of fixed windows, which begin at multiples of the window on Redis's clock.
function strategies.f(host, rule, from)
  local known = redis.call('HMGET', P .. 'host:' .. host, 'w', 'c')
  local window, count = tonumber(known[1] or 0), tonumber(known[2] or 0)
  local current = math.floor(from / rule[2])
  if current > window then window, count = current, 0 end
  local turns = {}
  function turns.next()
    if count < rule[3] then return math.max(from, window * rule[2]) end
    return (window + 1) * rule[2]
  end
  function turns.take()
    if count == rule[3] then window, count = window + 1, 0 end
    count = count + 1
  end
  function turns.keep(us)
    local key = P .. 'host:' .. host
    redis.call('HSET', key, 'w', text(window), 'c', count)
    redis.call('PEXPIRE', key, math.ceil(((window + 1) * rule[2] - us) / 1000) + 1)
  end
  return turns
end

-- Turns of a sliding window: each a window after the one that came the burst before.
function strategies.s(host, rule, from)
  local key, taken = P .. 'turns:' .. host, {}
  local function before(count)
    if count <= #taken then return taken[#taken - count + 1] end
    local found = redis.call('LINDEX', key, count - #taken - 1)
    return found and tonumber(found)
  end
  local turns = {}
  function turns.next()
    local oldest, last = before(rule[3]), before(1)
    return math.max(from, last or 0, oldest and oldest + rule[2] or 0)
  end
  function turns.take() taken[#taken + 1] = turns.next() end
  function turns.keep(us)
    for i, turn in ipairs(taken) do taken[i] = text(turn) end
    redis.call('LPUSH', key, unpack(taken))
    redis.call('LTRIM', key, 0, rule[3] - 1)
    redis.call('PEXPIRE', key, math.ceil((taken[#taken] + rule[2] - us) / 1000) + 1)
  end
  return turns
end

-- Until when a host is blocked (ms); 0 if it is not.
local function blocked_until(host)
  return blocking and tonumber(redis.call('ZSCORE', BLOCKS, host) or 0) or 0
end

-- Turns that are those of both.
local function both(own, slow)
  local turns = {}
  function turns.mark() return 0 end
  function turns.next() return math.max(own.next(), slow.next()) end
  function turns.take()
    own.take()
    slow.take()
  end
  function turns.keep(us)
    own.keep(us)
    slow.keep(us)
  end
  return turns
end

-- The next turns of a host: nil where it may be asked at any time. missed is the mark of a turn that the caller could not
-- use, or nil. turns.slack: how late a request may be (ms); turns.probing: whether all wait for the answer to one request;
-- turns.lost: whether it failed for too long.
local function turns_of(host, rule, us, missed)
  local from = math.max(us, blocked_until(host) * 1000)
  local paced = rule and rule[1] ~= 'n'
  local interval, probing, lost = slowest(host, us)
  local turns
  if interval then
    -- While it is slowed nothing comes in bursts, and what is late by more takes its turn anew.
    local bucket = paced and rule[1] == 't'
    if bucket then interval = math.max(interval, rule[2]) end
    local slow = {'t', interval, 1, bucket and rule[4] or 0, math.max(10, math.floor(interval / 1e5))}
    turns = strategies.t(host, slow, from, missed)
    if paced and not bucket then turns = both(strategies[rule[1]](host, rule, from), turns) end
    turns.slack = slow[5]
  elseif paced then
    turns = strategies[rule[1]](host, rule, from, missed)
    turns.mark = turns.mark or function() return 0 end
    turns.slack = rule[5]
  end
  if turns then turns.probing, turns.lost = probing, lost end
  return turns
end
