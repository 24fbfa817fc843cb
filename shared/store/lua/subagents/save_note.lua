#!lua flags=allow-oom
-- Note how far a running subagent is, for those who look.
-- KEYS   1 leases  2 child
-- ARGV   1 member  2 lease  3 rounds so far  4 tokens more
-- returns 1 noted, -1 the lease is lost
if not holds(KEYS[1], ARGV[1], ARGV[2]) then return -1 end
redis.call('HSET', KEYS[2], 'rounds', ARGV[3])
redis.call('HINCRBY', KEYS[2], 'tokens', ARGV[4])
return 1
