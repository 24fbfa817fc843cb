#!lua flags=allow-oom
-- This turn or subagent runs in a process of its own from here on, as long as it is this lease.
-- KEYS   1 leases  2 session or child
-- ARGV   1 member  2 lease
-- returns 1 noted, -1 the lease is lost
if not holds(KEYS[1], ARGV[1], ARGV[2]) then return -1 end
redis.call('HSET', KEYS[2], 'apart', ARGV[2])
return 1
