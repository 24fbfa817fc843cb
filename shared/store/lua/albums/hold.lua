#!lua
-- Holds a part of an album that does not address the bot, in case that another part does.
-- keep_ms  how long it is held
-- returns how many are held
local held = unpack(KEYS)
local record, keep_ms = unpack(ARGV)
local count = redis.call('RPUSH', held, record)
redis.call('PEXPIRE', held, keep_ms)
return count
