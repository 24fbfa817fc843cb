#!lua flags=allow-oom
-- Queues subagents again that have not ended but are in no queue, for instance because the server
-- lost its latest writes.
-- most  how many to look at
-- returns how many were put back
local SUBAGENTS, jobs, subagent_wake = unpack(KEYS)
local most = unpack(ARGV)
local back = 0
-- The oldest first; the next sweep goes on, because ended ones leave the list.
for _, id in ipairs(redis.call('ZRANGE', SUBAGENTS, 0, most - 1)) do
  -- pcall: a key of another type is no subagent.
  local state = redis.pcall('HGET', key('child', id), 'state')  -- a key that is broken is no subagent
  if state ~= 'queued' and state ~= 'running' then
    redis.call('ZREM', SUBAGENTS, id)
  -- NX: one that is queued or leased keeps its score.
  elseif redis.call('ZADD', jobs, 'NX', now_ms(), 'sub:' .. id) == 1 then
    describe_subagent(id)
    back = back + 1
  end
end
if back > 0 then wake(subagent_wake) end
return back
