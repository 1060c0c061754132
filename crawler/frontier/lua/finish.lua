--! base lease
-- Marks the crawl finished when nothing is left anywhere: nothing waits, is delayed, leased or suspect, all start requests
-- are in and no feeder is at work. ARGV: none. Returns 'finished', 'open', or 'unfed' when only a feeder that died half-way is missing.
local now = math.floor(clock() / 1000)
local f = fleet(now)
if f[6] == 'finished' then return 'finished' end
if f[1] + f[2] + f[3] + f[4] > 0 or f[5] ~= 'done' or f[9] > 0 then return 'open' end
if f[10] > 0 then return 'unfed' end
redis.call('HSET', STATE, 'phase', 'finished', 'finished', now)
wake()
return 'finished'
