--! frontier/base
-- Tells how long hosts are blocked.
-- ARGV: hosts, at least one.
-- Returns packed {ms ..} in the order of ARGV; 0 for one that may be asked.
local now = math.floor(clock() / 1000)
local reply = {}
for i, ends in ipairs(redis.call('ZMSCORE', BLOCKS, unpack(ARGV))) do
  reply[i] = ends and math.max(0, tonumber(ends) - now) or 0
end
return cmsgpack.pack(reply)
