#!lua flags=allow-oom
-- Publishes text of a running turn, and records it for whoever goes on with it.
-- recorded  what it is for the record: 'whole' text, 'more' of it, '' = not recorded
-- entry     the event as it is recorded ('' = as it is published)
-- returns how many gateways got it; -1 another worker owns the turn
local leases, live = unpack(KEYS)
local member, lease, event, recorded, entry, keep_ms = unpack(ARGV)
-- A worker that lost its lease must not write into the text of its successor.
if not holds_lease(leases, member, lease) then return -1 end
local receivers = redis.call('PUBLISH', live, event)
-- Nothing that is shown gets out before the record is on disk: the server sends what a script
-- publishes after it has written what the script wrote.
if recorded == '' then return receivers end
if recorded == 'whole' then
  redis.call('DEL', live)
end
-- A broken record is none.
local length = guarded('RPUSH', live, entry ~= '' and entry or event)
if recorded == 'more' and length == 1 then
  -- More of a text counts only after its beginning, which has expired.
  redis.call('DEL', live)
elseif length and length % 8 == 1 then
  -- One piece in eight says how long the text is kept: a fifth of what recording one costs.
  redis.call('PEXPIRE', live, keep_ms)
end
return receivers
