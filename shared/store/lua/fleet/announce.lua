#!lua flags=allow-oom
-- Keep the record of a live process for a while, and an index of all of them.
-- returns how many are in the index
local presence, PRESENCE = unpack(KEYS)
local record, keep_s = unpack(ARGV)
-- The record expires by itself; the index needs pruning.
local now = now_ms()
redis.call('SET', presence, record, 'EX', keep_s)
redis.call('ZADD', PRESENCE, now, presence)
-- Processes that died leave the index when their record has expired.
redis.call('ZREMRANGEBYSCORE', PRESENCE, '-inf', now - tonumber(keep_s) * 1000)
return redis.call('ZCARD', PRESENCE)
