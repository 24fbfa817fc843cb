#!lua flags=allow-oom
-- Stops every replica from sending to a platform for a while. A shorter pause never ends a longer
-- one.
-- returns ms until it is over
local outpause = unpack(KEYS)
local pause_ms = unpack(ARGV)
local ms = math.max(pause_left(outpause), tonumber(pause_ms))
redis.call('SET', outpause, integer(now_ms()), 'PX', integer(ms))
return ms
