--! base
-- The lease on the spider's start requests: one worker runs start(), another only if that one died before it was through.
-- ARGV: 1 worker id, 2 'take' or 'done'. Returns 'mine', 'other' or 'done'.
local now = math.floor(clock() / 1000)
local start = redis.call('HGET', STATE, 'start') or ''
if ARGV[2] == 'done' then
  if start ~= ARGV[1] then return start == 'done' and 'done' or 'other' end
  redis.call('HSET', STATE, 'start', 'done', 'active', now)
  wake()
  return 'done'
end
if start == 'done' or start == ARGV[1] then return start == 'done' and 'done' or 'mine' end
if start ~= '' and tonumber(redis.call('ZSCORE', WORKERS, start) or 0) > now then return 'other' end
redis.call('HSET', STATE, 'start', ARGV[1])
return 'mine'
