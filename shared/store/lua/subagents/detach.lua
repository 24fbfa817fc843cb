#!lua flags=allow-oom
-- The turn no longer waits for a subagent: its report will come into the inbox.
-- KEYS   1 child
-- returns 1 it will, 0 it has ended meanwhile, or is gone
local state = redis.call('HGET', KEYS[1], 'state')
if state ~= 'queued' and state ~= 'running' then return 0 end
-- subagents/end.lua reads this when the subagent ends.
redis.call('HSET', KEYS[1], 'wait', '0')
return 1
