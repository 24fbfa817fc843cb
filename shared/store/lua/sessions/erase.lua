#!lua flags=allow-oom
-- Deletes a session as if it had never existed. A running turn loses its lease, so it can write
-- nothing more.
-- KEYS   1 inbox  2 queue  3 leases  4 live  5 idle  6 rework, then every key that goes
-- ARGV   1 session  2 member  3 memory scope  4 control channel  5 a turn  6 live event that says that it is over
-- returns how many keys were there
-- Guarded: what is broken can be erased, too.
local head = (guarded('XRANGE', KEYS[1], '-', '+', 'COUNT', 1) or {})[1]
local n = head and string.match(head[1], '%d+')
-- The worker that runs the turn stops at once; without its lease it could write nothing anyway.
if n then
  redis.call('PUBLISH', ARGV[4], ARGV[2] .. ' ' .. n)
  -- Pages show the end only of the turn that the caller saw.
  if n == ARGV[5] then
    redis.call('PUBLISH', KEYS[4], ARGV[6])
  end
end
remove_from_queue(KEYS[2], ARGV[2])
redis.call('HDEL', KEYS[3], ARGV[2])
guarded('ZREM', KEYS[5], ARGV[1])
guarded('ZREM', KEYS[6], ARGV[3])
-- Of a delivered chat the queues of its channel go, too.
local channel = delivery_channel(ARGV[1])
if channel then
  guarded('ZREM', key('outqueue', channel), ARGV[1])
  guarded('ZREM', key('outwaits', channel), ARGV[1])
  guarded('HDEL', key('outleases', channel), ARGV[1])
end
local gone = drop_schedules(ARGV[1]) + drop_subagents(ARGV[1])
-- Every other key comes by name from the caller.
for i = 7, #KEYS do
  gone = gone + redis.call('DEL', KEYS[i])
end
return gone
