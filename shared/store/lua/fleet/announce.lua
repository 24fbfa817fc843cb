#!lua flags=allow-oom
-- Keep the record of a live process for a while, and an index of all of them.
-- KEYS   1 record  2 index
-- ARGV   1 record  2 keep it s
-- returns how many are in the index
-- The record expires by itself; the index needs pruning.
local now = now_ms()
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
redis.call('ZADD', KEYS[2], now, KEYS[1])
-- Processes that died leave the index when their record has expired.
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - tonumber(ARGV[2]) * 1000)
return redis.call('ZCARD', KEYS[2])
