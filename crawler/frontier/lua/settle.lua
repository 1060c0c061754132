--! base session queue lease exact seen_{filter} put
-- Ends leases, after the links of their pages went in: done, retry at a time, dead, or back to the front of the queue.
-- ARGV: 1-3 session, 4 seen base, 5 once base, 6 error rate, 7 declared capacity, 8 packed list of entries (lib/put.lua)
--       or '', 9 packed list {done, retries, dead, back, letters, tallies, filtered}:
--       done {id..}; retries {{id, host, band, delay (ms, 0 = none), body, reason}..}; dead {{id, letter}..}; back {id..};
--       letters {letter..} of things that never were a lease; tallies {{counter, amount}..}; filtered {{id, reason}..} of
--       pages that a rule kept from being fetched; a letter is a flat list of field, value.
-- Returns packed {'ok', one character an entry, {stale lease ids}}.
-- Without entries, retries and letters its first write frees memory, so that a full server still takes it.
local plan = cmsgpack.unpack(ARGV[9])
local done, retries, dead, back, letters, tallies, filtered = plan[1], plan[2], plan[3], plan[4], plan[5], plan[6], plan[7]

local new, queued, repeated = '', 0, 0
if ARGV[8] ~= '' then
  local seen = seen_filter(ARGV[4], tonumber(ARGV[6]), tonumber(ARGV[7]))
  new, queued, repeated = put_entries(cmsgpack.unpack(ARGV[8]), seen, exact_set(ARGV[5]), now)
end
for _, letter in ipairs(letters) do redis.call('XADD', DEAD, '*', unpack(letter)) end

local stale = drop(done, HELD)
local ended = #done - #stale

local ids = {}
for i, it in ipairs(filtered) do ids[i] = it[1] end
local unheld, of_reason = {}, {}
for _, id in ipairs(drop(ids, HELD)) do
  unheld[id] = true
  stale[#stale + 1] = id
end
local kept_out = 0
for _, it in ipairs(filtered) do
  if not unheld[it[1]] then
    kept_out = kept_out + 1
    of_reason[it[2]] = (of_reason[it[2]] or 0) + 1
  end
end

ids = {}
for i, it in ipairs(retries) do ids[i] = it[1] end
local waiting, late = release(ids, HELD)
for _, it in ipairs(retries) do
  local lease = waiting[it[1]]
  if lease then
    local element = string.char(math.min(string.byte(lease[4], 1) + 1, 255), 0) .. it[5]
    if it[4] > 0 then
      redis.call('ZADD', DELAYED, now + it[4], cmsgpack.pack({it[2], it[3], element, it[6]}))
    else
      push(it[2], it[3], {element}, now, false)
    end
  end
end
for _, id in ipairs(late) do stale[#stale + 1] = id end
local retried = #retries - #late

ids = {}
for i, it in ipairs(dead) do ids[i] = it[1] end
local failed, gone = release(ids, HELD)
for _, it in ipairs(dead) do
  local lease = failed[it[1]]
  if lease then
    local letter = it[2]
    local n = #letter
    letter[n + 1], letter[n + 2], letter[n + 3], letter[n + 4] = 'host', lease[2], 'band', lease[3]
    letter[n + 5], letter[n + 6] = 'element', lease[4]
    redis.call('XADD', DEAD, '*', unpack(letter))
  end
end
for _, id in ipairs(gone) do stale[#stale + 1] = id end

local returned, missing = release(back, HELD)
for i = #back, 1, -1 do
  local lease = returned[back[i]]
  if lease then hand_back(lease[2], lease[3], lease[4], now) end
end
for _, id in ipairs(missing) do stale[#stale + 1] = id end

local died = #dead - #gone + #letters
if repeated > 0 then redis.call('HINCRBY', COUNTERS, 'duplicate', repeated) end
if ended > 0 then redis.call('HINCRBY', COUNTERS, 'done', ended) end
if died > 0 then redis.call('HINCRBY', COUNTERS, 'dead', died) end
if #letters > 0 then redis.call('HINCRBY', COUNTERS, 'letters', #letters) end
if kept_out > 0 then redis.call('HINCRBY', COUNTERS, 'filtered', kept_out) end
for reason, count in pairs(of_reason) do redis.call('HINCRBY', COUNTERS, 'filtered:' .. reason, count) end
if retried > 0 then redis.call('HINCRBY', COUNTERS, 'retried', retried) end
if #back > #missing then redis.call('HINCRBY', COUNTERS, 'returned', #back - #missing) end
if #stale > 0 then redis.call('HINCRBY', COUNTERS, 'stale', #stale) end
for _, tally in ipairs(tallies) do redis.call('HINCRBY', COUNTERS, tally[1], tally[2]) end
if ended + died + retried + kept_out > 0 then redis.call('HSET', STATE, 'active', now, 'time', text(us)) end
if retried > 0 or #back > #missing then wake() end
return answer({'ok', new, stale})
