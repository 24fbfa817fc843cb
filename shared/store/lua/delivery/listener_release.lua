#!lua flags=allow-oom
-- Give a lock up, and tell those who wait for it.
-- KEYS   1 lock  2 freed
-- ARGV   1 lease
-- returns 1 given up, -1 it is lost
if redis.call('HGET', KEYS[1], 'lease') ~= ARGV[1] then return -1 end
redis.call('HDEL', KEYS[1], 'lease', 'until')
redis.call('PUBLISH', KEYS[2], '')
return 1
