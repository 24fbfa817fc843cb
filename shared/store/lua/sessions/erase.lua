#!lua flags=allow-oom
-- durable
-- Deletes a session as if it had never existed. A running turn loses its lease, so it can write
-- nothing more.
-- name     the session
-- scope    of its memory
-- control  the pub/sub channel
-- turn     a turn, and the live event that says that it is over
-- own      MessagePack list of every other key that goes
-- returns how many keys were there
local inbox, queue, leases, live, IDLE, REWORK = unpack(KEYS)
local name, member, scope, control, turn, event, own = unpack(ARGV)
-- Guarded: what is broken can be erased, too.
local head = (guarded('XRANGE', inbox, '-', '+', 'COUNT', 1) or {})[1]
local n = head and string.match(head[1], '%d+')
-- The worker that runs the turn stops at once; without its lease it could write nothing anyway.
if n then
  redis.call('PUBLISH', control, member .. ' ' .. n)
  -- Pages show the end only of the turn that the caller saw.
  if n == turn then
    redis.call('PUBLISH', live, event)
  end
end
redis.call('DEL', live)
remove_from_queue(queue, member)
redis.call('HDEL', leases, member)
guarded('ZREM', IDLE, name)
guarded('ZREM', REWORK, scope)
-- Of a delivered chat the queues of its channel go, too.
local channel = delivery_channel(name)
if channel then
  guarded('ZREM', key('outqueue', channel), name)
  guarded('ZREM', key('outwaits', channel), name)
  guarded('HDEL', key('outleases', channel), name)
end
local gone = drop_schedules(name) + drop_subagents(name) + drop_responses(name)
for _, one in ipairs(cmsgpack.unpack(own)) do
  gone = gone + redis.call('DEL', one)
end
-- By its name for every caller: an older list of Redis users would refuse the whole call.
guarded('DEL', key('transcript', name))
guarded('DEL', key('pages', name))
add_fact(name, 'deleted', 1)
return gone
