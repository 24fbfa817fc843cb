#!lua flags=allow-oom
-- Stores the progress of a running subagent.
-- KEYS   1 leases  2 child
-- ARGV   1 member  2 lease  3 rounds so far  4 tokens more
-- returns 1 noted, -1 the lease is lost
if not holds_lease(KEYS[1], ARGV[1], ARGV[2]) then return -1 end
redis.call('HSET', KEYS[2], 'rounds', ARGV[3])
-- Tokens are added, because attempts before this one used some, too.
redis.call('HINCRBY', KEYS[2], 'tokens', ARGV[4])
return 1
