#!lua flags=allow-oom
-- with delivery
-- Stops every replica from sending to a platform for a while. A shorter pause never ends a longer
-- one.
-- KEYS   1 pause
-- ARGV   1 ms
-- returns ms until it is over
local ms = math.max(pause_left(KEYS[1]), tonumber(ARGV[1]))
redis.call('SET', KEYS[1], integer(now_ms()), 'PX', integer(ms))
return ms
