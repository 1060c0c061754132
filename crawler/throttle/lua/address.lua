--! frontier/base
-- Makes an address that of a host for the whole fleet, unless there is one. ARGV: 1 host, 2 address. Returns the address.
-- addresses HASH host -> address; forgotten a day after the last one.
local key = P .. 'addresses'
redis.call('HSETNX', key, ARGV[1], ARGV[2])
redis.call('PEXPIRE', key, 86400000)
return redis.call('HGET', key, ARGV[1])
