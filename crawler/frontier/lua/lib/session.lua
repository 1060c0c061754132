-- The caller's ordered stream of batches: exactly once, in order, also when a reply is lost.
-- ARGV: 1 worker, 2 session token, 3 sequence number of this batch. Further arguments start at ARGV[4].
-- A batch that ran already gets its kept reply. The last two are kept, since one round trip carries up to two batches (a
-- settle and a claim), and both are sent again when their replies are lost. A batch that does not follow on the last, or
-- whose session Redis does not know (restart with a lost tail, purge, reaped worker), is refused with {'stale'}, and the
-- worker opens a new session.
local me, sequence = ARGV[1], tonumber(ARGV[3])
local known = redis.call('HMGET', SESSION, 'token', 'sequence')
if known[1] ~= ARGV[2] then return cmsgpack.pack({'stale', 'unknown session'}) end
local last = tonumber(known[2])
if last == sequence or last == sequence + 1 then return redis.call('HGET', SESSION, 'reply' .. sequence % 2) end
if last + 1 ~= sequence then return cmsgpack.pack({'stale', 'batches are missing before this one'}) end
local us = clock()
local now = math.floor(us / 1000)

-- Keeps the reply for a resend and returns it. Its HSET may be refused by a full memory only when nothing was written.
local function answer(reply)
  local packed = cmsgpack.pack(reply)
  redis.call('HSET', SESSION, 'sequence', sequence, 'reply' .. sequence % 2, packed)
  return packed
end
