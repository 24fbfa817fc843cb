#!lua flags=allow-oom
-- Queues sessions again that have messages and are in no queue, as after the queue was deleted.
-- names  MessagePack list of the sessions
-- returns how many were put back
local queue, leases, wake_list = unpack(KEYS)
local names = unpack(ARGV)
local now, back = now_ms(), 0
for _, name in ipairs(cmsgpack.unpack(names)) do
  local member = 'turn:' .. name
  if not redis.call('ZSCORE', queue, member) and not guarded('ZSCORE', BACKGROUND, member) then
    local head = (guarded('XRANGE', key('inbox', name), '-', '+', 'COUNT', 1) or {})[1]
    if head and redis.call('HGET', leases, member) then
      -- It has an owner: the next renewal sets the deadline, and if none comes the owner is dead.
      redis.call('ZADD', queue, integer(now + 60000), member)
      back = back + 1
    -- pcall: another key of this session may be broken.
    elseif head and pcall(requeue, queue, wake_list, key('session', name), member, head, now, now) then
      back = back + 1
    end
  end
end
return back
