#!lua flags=allow-oom
-- Queues subagents again that have not ended but are in no queue, for instance because the server
-- lost its latest writes.
-- KEYS   1 subagents  2 queue  3 wake
-- ARGV   1 how many to look at
-- returns how many were put back
local back = 0
-- The oldest first; the next sweep goes on, because ended ones leave the list.
for _, id in ipairs(redis.call('ZRANGE', KEYS[1], 0, ARGV[1] - 1)) do
  -- pcall: a key of another type is no subagent.
  local state = redis.pcall('HGET', key('child', id), 'state')  -- a key that is broken is no subagent
  if state ~= 'queued' and state ~= 'running' then
    redis.call('ZREM', KEYS[1], id)
  -- NX: one that is queued or leased keeps its score.
  elseif redis.call('ZADD', KEYS[2], 'NX', now_ms(), 'sub:' .. id) == 1 then
    back = back + 1
  end
end
if back > 0 then wake(KEYS[3]) end
return back
