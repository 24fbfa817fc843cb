#!lua flags=allow-oom
-- Releases a lock and wakes the replicas that wait for it.
-- returns 'released', 'lost'
local lock, freed = unpack(KEYS)
local lease = unpack(ARGV)
if redis.call('HGET', lock, 'lease') ~= lease then return 'lost' end
-- Token and cursor stay for the next holder.
redis.call('HDEL', lock, 'lease', 'until')
-- Replicas that wait take over at once instead of at their next look.
redis.call('PUBLISH', freed, '')
return 'released'
