--! frontier/base pace host
-- Tells how long hosts are blocked, and what else holds for them.
-- ARGV: hosts, at least one.
-- Returns packed {ms until it may be asked, state ..} in the order of ARGV; state: 0 it may be asked at any time but for its rule,
-- 1 it is slowed down, 2 an operator paused it, 3 an operator refuses it.
local us = clock()
local now = math.floor(us / 1000)
local reply = {}
for i, host in ipairs(ARGV) do
  local left, state = 0, 0
  if limited then
    local _, order = rule_of(host)
    left = math.max(0, blocked_until(host) - now)
    if order == 'block' then
      state = 3
    elseif order == 'pause' then
      state = 2
    elseif order or slowest(host, us) then
      state = 1
    end
  end
  reply[2 * i - 1], reply[2 * i] = left, state
end
return cmsgpack.pack(reply)
