#!lua flags=allow-oom
-- Take a schedule out of its chat, for an operator or for a turn that holds its lease.
-- KEYS   1 leases
-- ARGV   1 id  2 session  3 member  4 lease ('' = no turn wants this)
-- returns 1 it is gone, 0 there is none, -1 the lease is lost
-- A turn may remove schedules only while it holds its lease.
if ARGV[4] ~= '' and not holds_lease(KEYS[1], ARGV[3], ARGV[4]) then return -1 end
return drop_schedule(ARGV[2], ARGV[1]) and 1 or 0
