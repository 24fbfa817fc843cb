#!lua flags=allow-oom
-- Releases a lock and wakes the replicas that wait for it.
-- KEYS   1 lock  2 freed
-- ARGV   1 lease
-- returns 1 given up, -1 it is lost
if redis.call('HGET', KEYS[1], 'lease') ~= ARGV[1] then return -1 end
-- Token and cursor stay for the next holder.
redis.call('HDEL', KEYS[1], 'lease', 'until')
-- Replicas that wait take over at once instead of at their next look.
redis.call('PUBLISH', KEYS[2], '')
return 1
