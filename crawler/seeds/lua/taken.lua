-- Removes seeds from the intake once they are in the frontier. KEYS: 2 intake, 3 lease ends (1 start URLs, not touched).
-- ARGV: ids. Returns how many were there.
redis.call('ZREM', KEYS[3], unpack(ARGV))
return redis.call('HDEL', KEYS[2], unpack(ARGV))
