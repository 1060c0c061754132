--! frontier/base pace host
-- Takes turns of hosts for requests that do not come through the frontier, and for those that missed theirs.
-- ARGV: host, mark of the turn that was missed or '' .. for each request.
-- Returns packed {wait (ms), slack (ms), mark ..} in that order; a slack of 0 where the host has no limit, of -1 where it is to
-- be asked for again after the wait, since it is blocked or paused.
local LOOK_MS = 1000
local us = clock()
local reply = {}
for i = 1, #ARGV, 2 do
  local host = ARGV[i]
  local wait, slack, mark = 0, 0, 0
  if limited then
    local rule, order = rule_of(host)
    local blocked = blocked_until(host) * 1000
    local turns = turns_of(host, rule, us, tonumber(ARGV[i + 1]))
    if order == 'pause' or blocked > us then
      -- Whoever lifts it does not know who waits.
      wait, slack = order == 'pause' and LOOK_MS or math.min(LOOK_MS, math.ceil((blocked - us) / 1000)), -1
    elseif turns then
      wait, slack = math.max(0, math.ceil((turns.next() - us) / 1000)), turns.slack
      turns.take()
      mark = turns.mark()
      turns.keep(us)
    end
  end
  reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = wait, slack, mark
end
redis.call('HSET', STATE, 'time', text(us))
return cmsgpack.pack(reply)
