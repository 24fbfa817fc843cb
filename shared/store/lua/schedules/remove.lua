#!lua flags=allow-oom
-- durable
-- Take a schedule out of its chat, for an operator or for a turn that holds its lease.
-- name   the session
-- lease  '' = no turn wants this
-- returns 'removed', 'unknown', 'lost'
local leases = unpack(KEYS)
local id, name, member, lease = unpack(ARGV)
-- A turn may remove schedules only while it holds its lease.
if lease ~= '' and not holds_lease(leases, member, lease) then return 'lost' end
return drop_schedule(name, id) and 'removed' or 'unknown'
