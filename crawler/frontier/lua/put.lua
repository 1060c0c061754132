--! base session queue exact seen_{filter} put
-- Puts entries: each is tested against the seen filter and queued in this one step.
-- ARGV: 1-3 session, 4 seen base, 5 once base, 6 error rate, 7 declared capacity, then five an entry (lib/put.lua).
-- Returns packed {'ok', one character an entry: '1' new, '0' known}.
local count = (#ARGV - 7) / 5
local seen = seen_filter(ARGV[4], tonumber(ARGV[6]), tonumber(ARGV[7]))
local new = put_entries(8, count, seen, exact_set(ARGV[5]), now)
return answer({'ok', new})
