--! base queue lease back
-- Lets a worker, a feeder or a reader join the crawl: makes the crawl's record, or a new generation of a finished one.
-- ARGV: 1 worker id, 2 new session token, 3 lapse (ms), 4 schema, 5 identity (packed map of names that must not differ),
--       6 '1' to keep the seen filter over generations, 7 feeder name or '', 8 '1' if the caller was in the crawl before and
--       lost its session: then it does not start a finished crawl over, and 9 and on are ids of the leases that it holds.
-- Returns packed {'ok', generation, generation of the seen filter, start, whether this call opened a generation}
--       or {'clash', name, stored, given}.
local us = clock()
local now = math.floor(us / 1000)
local mine = cmsgpack.unpack(ARGV[5])
local known = redis.call('HMGET', STATE, 'schema', 'identity', 'generation', 'seen_generation', 'phase')
if known[1] and known[1] ~= ARGV[4] then return cmsgpack.pack({'clash', 'schema', known[1], ARGV[4]}) end
if known[2] then
  local theirs = cmsgpack.unpack(known[2])
  for name, value in pairs(mine) do
    if theirs[name] and theirs[name] ~= value then
      return cmsgpack.pack({'clash', name, theirs[name], value})
    end
    theirs[name] = value
  end
  mine = theirs
end
local generation, seen = tonumber(known[3] or 0), tonumber(known[4] or 0)
local alive = redis.call('ZCOUNT', WORKERS, '(' .. now, '+inf')
local opened = generation == 0 or (known[5] == 'finished' and alive == 0 and ARGV[8] ~= '1')
if opened then
  generation = generation + 1
  if generation > 1 then
    redis.call('SADD', GARBAGE, 'once:' .. (generation - 1))
    if ARGV[6] ~= '1' then redis.call('SADD', GARBAGE, 'seen:' .. seen) end
    -- Workers that are silent, but not reaped yet, would go on with the filter that ends here: they must join again.
    for _, name in ipairs(redis.call('ZRANGE', WORKERS, 0, -1)) do
      redis.call('DEL', P .. 'session:' .. name)
      forget_busy(name)
    end
    redis.call('DEL', WORKERS)
  end
  if seen == 0 or ARGV[6] ~= '1' then seen = generation end
  redis.call('HSET', STATE, 'generation', generation, 'seen_generation', seen, 'phase', 'open', 'start', '',
             'active', now, 'started', now)
  for _, name in ipairs(redis.call('HKEYS', COUNTERS)) do
    if name ~= 'waiting' and name ~= 'seen' then redis.call('HDEL', COUNTERS, name) end
  end
  redis.call('DEL', SPENT, P .. 'jars')
  if seen == generation then redis.call('HDEL', COUNTERS, 'seen') end
end
redis.call('HSET', STATE, 'schema', ARGV[4], 'identity', cmsgpack.pack(mine), 'time', text(us))
redis.call('HSET', SESSION, 'token', ARGV[2], 'sequence', 0, 'reply0', '', 'reply1', '', 'joined', now)
redis.call('PEXPIRE', SESSION, 86400000)
redis.call('ZADD', WORKERS, now + tonumber(ARGV[3]), ARGV[1])
if ARGV[7] ~= '' then redis.call('SADD', FEEDERS, ARGV[7]) end
forget_busy(ARGV[1])
if ARGV[8] == '1' then
  -- What it settled, or claimed and never heard of, in a tail that Redis lost: nobody else would work on it until it runs out.
  local holds, forgotten = {}, {}
  for i = 9, #ARGV do holds[ARGV[i]] = true end
  for _, id in ipairs(redis.call('SMEMBERS', HELD)) do
    if not holds[id] then forgotten[#forgotten + 1] = id end
  end
  if give_back(forgotten, HELD, now) > 0 then wake() end
end
return cmsgpack.pack({'ok', generation, seen, redis.call('HGET', STATE, 'start') or '', opened and 1 or 0})
