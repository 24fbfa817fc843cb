#!lua flags=allow-oom
-- Stops every replica from sending to a platform for a while. A shorter pause never ends a longer
-- one.
-- KEYS   1 pause
-- ARGV   1 ms
-- returns ms until it is over
-- PTTL is negative for a missing key.
local ms = math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[1]))
redis.call('SET', KEYS[1], '1', 'PX', integer(ms))
return ms
