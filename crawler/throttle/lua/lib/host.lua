-- When a host may be asked. host:<host> HASH: t theoretical arrival time of its next request (us), w and c window and
-- requests in it; turns:<host> LIST of the last turns of a sliding window, newest first. All expire when they tell nothing
-- any more.
-- A rule is packed {strategy, interval or window (us), burst, jitter, slack (ms)}; an empty one is no limit.
-- Token bucket: the generic cell rate algorithm (ITU-T I.371) as a virtual schedule. With it requests take turns that may
-- lie ahead of now.
local limits = redis.call('HMGET', LIMITS, 'default', 'globs', 'named')
local blocking = redis.call('EXISTS', BLOCKS) == 1
local limited = (limits[1] or limits[2] or limits[3] or blocking) and true or false
local globs = limits[2] and cmsgpack.unpack(limits[2])
local default = limits[1] and cmsgpack.unpack(limits[1])

-- The rule of a host, or nil.
local function rule_of(host)
  if limits[3] then
    local names, at = {'r:' .. host}, 1
    while true do
      local dot = string.find(host, '.', at, true)
      if not dot or #names == 32 then break end
      at = dot + 1
      names[#names + 1] = 'r:' .. string.sub(host, at)
    end
    for _, packed in ipairs(redis.call('HMGET', LIMITS, unpack(names))) do
      if packed then
        local rule = cmsgpack.unpack(packed)
        return rule[1] and rule
      end
    end
  end
  for _, glob in ipairs(globs or {}) do
    if string.find(host, glob[1]) then return glob[2][1] and glob[2] end
  end
  return default
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
    redis.call('PEXPIRE', key, math.ceil((arrival - us) / 1000) + 1)
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

-- The next turns of a host that has a rule; missed is the mark of a turn that the caller could not use, or nil.
local function turns_of(host, rule, us, missed)
  local turns = strategies[rule[1]](host, rule, math.max(us, blocked_until(host) * 1000), missed)
  turns.mark = turns.mark or function() return 0 end
  return turns
end
