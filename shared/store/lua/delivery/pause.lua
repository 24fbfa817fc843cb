#!lua flags=allow-oom
-- Let no replica send anything to a platform for a while. A shorter pause ends no longer one.
-- KEYS   1 pause
-- ARGV   1 ms
-- returns ms until it is over
local ms = math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[1]))
redis.call('SET', KEYS[1], '1', 'PX', integer(ms))
return ms
