#!lua flags=allow-oom
-- durable
-- The turn no longer waits for a subagent: its report will come into the inbox.
-- returns 1 it will, 0 it has ended meanwhile, or is gone
local child = unpack(KEYS)
local state = redis.call('HGET', child, 'state')
if state ~= 'queued' and state ~= 'running' then return 0 end
-- subagents/end.lua reads this when the subagent ends.
redis.call('HSET', child, 'wait', '0')
return 1
