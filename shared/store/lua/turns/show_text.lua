#!lua flags=allow-oom
-- Publishes text of a running turn, and records it as long as somebody watches.
-- recorded  what it is for the record: 'whole' text, 'more' of it, '' = not recorded
-- returns how many gateways got it
local leases, live = unpack(KEYS)
local member, lease, event, recorded, keep_ms = unpack(ARGV)
-- A worker that lost its lease must not write into the text of its successor.
if not holds_lease(leases, member, lease) then return 0 end
local receivers = redis.call('PUBLISH', live, event)
-- Text that nobody has seen may go with its worker. Nothing that is shown gets out before the
-- record
-- is on disk: the server sends what a script publishes after it has written what the script wrote.
if receivers == 0 or recorded == '' then return receivers end
if recorded == 'whole' then
  redis.call('DEL', live)
end
-- More of a text counts only after its beginning, which may have expired. A broken record is none.
if recorded == 'whole' or guarded('LLEN', live) ~= 0 then
  guarded('RPUSH', live, event)
  redis.call('PEXPIRE', live, keep_ms)
end
return receivers
