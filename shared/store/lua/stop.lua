#!lua flags=allow-oom
-- Ask for the end of the turn at the head of a session, running or waiting. It names that turn and no other.
-- KEYS   1 session  2 inbox  3 queue  4 leases  5 wake
-- ARGV   1 member  2 control channel  3 the turn that is meant ('' = the one at the head)
-- returns the turn's number, 0 if there is none or another one is at the head by now
local head = redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', 1)[1]
local n = head and string.match(head[1], '%d+')
if not n or (ARGV[3] ~= '' and ARGV[3] ~= n) then return 0 end
redis.call('HSET', KEYS[1], 'stop', n)
if not redis.call('HGET', KEYS[4], ARGV[1]) then
  -- It waits, perhaps for a model that is away: whoever takes it now ends it.
  redis.call('ZADD', KEYS[3], 'XX', now_ms(), ARGV[1])
  wake(KEYS[5])
end
redis.call('PUBLISH', ARGV[2], ARGV[1] .. ' ' .. n)
return tonumber(n)
