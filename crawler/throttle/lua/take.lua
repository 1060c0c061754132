--! frontier/base host
-- Takes turns of hosts for requests that do not come through the frontier, and for those that missed theirs.
-- ARGV: hosts, one a request.
-- Returns packed {wait (ms), slack (ms) .. } in the order of ARGV; 0 0 where nothing is limited.
local us = clock()
local reply = {}
for i, host in ipairs(ARGV) do
  local rule = limited and rule_of(host)
  local wait, slack = 0, 0
  if rule then
    local turns = turns_of(host, rule, us)
    wait, slack = math.max(0, math.ceil((turns.next() - us) / 1000)), rule[5]
    turns.take()
    turns.keep(us)
  end
  reply[2 * i - 1], reply[2 * i] = wait, slack
end
redis.call('HSET', STATE, 'time', text(us))
return cmsgpack.pack(reply)
