#!lua flags=allow-oom
-- Queues sessions again that have messages and are in no queue, as after the queue was deleted.
-- KEYS   1 queue  2 leases  3 wake
-- ARGV   the sessions
-- returns how many were put back
local now, back = now_ms(), 0
for _, name in ipairs(ARGV) do
  local member = 'turn:' .. name
  if not redis.call('ZSCORE', KEYS[1], member) and not guarded('ZSCORE', BACKGROUND, member) then
    local head = (guarded('XRANGE', key('inbox', name), '-', '+', 'COUNT', 1) or {})[1]
    if head and redis.call('HGET', KEYS[2], member) then
      -- It has an owner: the next renewal sets the deadline, and if none comes the owner is dead.
      redis.call('ZADD', KEYS[1], integer(now + 60000), member)
      back = back + 1
    -- pcall: another key of this session may be broken.
    elseif head and pcall(requeue, KEYS[1], KEYS[3], key('session', name), member, head, now, now) then
      back = back + 1
    end
  end
end
return back
