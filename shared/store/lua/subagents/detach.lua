#!lua flags=allow-oom
-- The turn waits no longer for a subagent: it will be told in the inbox.
-- KEYS   1 child
-- returns 1 it will, 0 it has ended meanwhile, or is gone
local state = redis.call('HGET', KEYS[1], 'state')
if state ~= 'queued' and state ~= 'running' then return 0 end
redis.call('HSET', KEYS[1], 'wait', '0')
return 1
