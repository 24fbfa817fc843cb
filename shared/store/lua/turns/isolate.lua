#!lua flags=allow-oom
-- Records that a turn or subagent runs isolated, in a process of its own, under this lease.
-- KEYS   1 leases  2 session or child
-- ARGV   1 member  2 lease
-- returns 1 noted, -1 the lease is lost
if not holds_lease(KEYS[1], ARGV[1], ARGV[2]) then return -1 end
-- The lease is the value: a later attempt that is not isolated finds another lease here.
redis.call('HSET', KEYS[2], 'apart', ARGV[2])
return 1
