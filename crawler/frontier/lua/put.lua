--! base session queue exact seen_{filter} put
-- Puts entries: each is tested against the seen filter and queued in this one step.
-- ARGV: 1-3 session, 4 seen base, 5 once base, 6 error rate, 7 declared capacity, 8 packed list of entries (lib/put.lua).
-- Returns packed {'ok', one character an entry: '1' new, '0' known, '2' over a budget}.
local seen = seen_filter(ARGV[4], tonumber(ARGV[6]), tonumber(ARGV[7]))
local new, _, repeated = put_entries(cmsgpack.unpack(ARGV[8]), seen, exact_set(ARGV[5]), now)
if repeated > 0 then redis.call('HINCRBY', COUNTERS, 'duplicate', repeated) end
return answer({'ok', new})
