--! frontier/base host
-- Takes turns of hosts for requests that do not come through the frontier, and for those that missed theirs.
-- ARGV: host, mark of the turn that was missed or '' .. for each request.
-- Returns packed {wait (ms), slack (ms), mark ..} in that order; a slack of 0 where the host has no limit and no block.
local us = clock()
local reply = {}
for i = 1, #ARGV, 2 do
  local host = ARGV[i]
  local rule = limited and rule_of(host)
  local wait, slack, mark = 0, 0, 0
  if rule then
    local turns = turns_of(host, rule, us, tonumber(ARGV[i + 1]))
    wait, slack = math.max(0, math.ceil((turns.next() - us) / 1000)), rule[5]
    turns.take()
    mark = turns.mark()
    turns.keep(us)
  elseif limited and blocked_until(host) * 1000 > us then
    wait, slack = math.ceil(blocked_until(host) - us / 1000), 1000
  end
  reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = wait, slack, mark
end
redis.call('HSET', STATE, 'time', text(us))
return cmsgpack.pack(reply)
