#!lua flags=allow-oom
-- Put subagents back that have not ended and are in no queue: a worker of a release that knows none took one for a job,
-- or the server lost its tail.
-- KEYS   1 subagents  2 queue  3 wake
-- ARGV   1 how many to look at
-- returns how many were put back
local back = 0
for _, id in ipairs(redis.call('ZRANGE', KEYS[1], 0, ARGV[1] - 1)) do
  local state = redis.pcall('HGET', key('child', id), 'state')  -- a key that is broken is no subagent
  if state ~= 'queued' and state ~= 'running' then
    redis.call('ZREM', KEYS[1], id)
  elseif redis.call('ZADD', KEYS[2], 'NX', now_ms(), 'sub:' .. id) == 1 then
    back = back + 1
  end
end
if back > 0 then wake(KEYS[3]) end
return back
