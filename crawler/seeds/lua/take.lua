-- Takes raw seeds out of a spider's start URLs into the intake, where they stay under a lease until they are in the frontier.
-- KEYS: 1 start URLs (list, set or sorted set), 2 intake HASH id -> raw, 3 ZSET id -> lease end (ms).
-- ARGV: 1 how many at most, 2 lease (ms). Lists are taken from the head, sorted sets from the highest score.
-- Returns packed {'ok', {{id, raw}..}, seeds left unread, seeds in the intake} or {'type', name of the key's type}.
local t = redis.call('TIME')
local us = tonumber(t[1]) * 1000000 + tonumber(t[2])
local now, n = math.floor(us / 1000), tonumber(ARGV[1])
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'none' and kind ~= 'list' and kind ~= 'set' and kind ~= 'zset' then return cmsgpack.pack({'type', kind}) end

local out, due = {}, {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now, 'LIMIT', 0, n)) do
  out[#out + 1] = {id, redis.call('HGET', KEYS[2], id)}
  due[#due + 1] = now + tonumber(ARGV[2])
  due[#due + 1] = id
end
if #due > 0 then redis.call('ZADD', KEYS[3], unpack(due)) end

local left = 0
if kind == 'list' then left = redis.call('LLEN', KEYS[1])
elseif kind == 'set' then left = redis.call('SCARD', KEYS[1])
elseif kind == 'zset' then left = redis.call('ZCARD', KEYS[1]) end
local take = math.min(n - #out, left)
if take > 0 then
  -- Refused by a full memory before anything is taken.
  redis.call('HSET', KEYS[2], '', '')
  redis.call('HDEL', KEYS[2], '')
  local raw = {}
  if kind == 'list' then raw = redis.call('LPOP', KEYS[1], take)
  elseif kind == 'set' then raw = redis.call('SPOP', KEYS[1], take)
  else
    local pairs_ = redis.call('ZPOPMAX', KEYS[1], take)
    for i = 1, #pairs_, 2 do raw[#raw + 1] = pairs_[i] end
  end
  for i, seed in ipairs(raw) do
    local id = string.format('%.0f', us) .. '-' .. i
    redis.call('HSET', KEYS[2], id, seed)
    redis.call('ZADD', KEYS[3], now + tonumber(ARGV[2]), id)
    out[#out + 1] = {id, seed}
  end
  left = left - #raw
end
return cmsgpack.pack({'ok', out, left, redis.call('HLEN', KEYS[2])})
