#!lua flags=allow-oom
-- Ask for the end of the turn at the head of a session, running or waiting. It names that turn and no other.
-- KEYS   1 session  2 inbox
-- ARGV   1 member  2 control channel
-- returns the turn's number, 0 if there is none
local head = redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', 1)[1]
if not head then return 0 end
local n = string.match(head[1], '%d+')
redis.call('HSET', KEYS[1], 'stop', n)
redis.call('PUBLISH', ARGV[2], ARGV[1] .. ' ' .. n)
return tonumber(n)
