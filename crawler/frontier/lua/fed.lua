--! base
-- A feeder is through with its source: the crawl may end without it. ARGV: 1 feeder name. Returns how many it took off the list.
local gone = redis.call('SREM', FEEDERS, ARGV[1])
wake()
return gone
