#!lua flags=allow-oom
-- durable
-- Renews a lock, and stores how far its holder has read.
-- cursor  '' = as it is
-- returns 'renewed', 'lost'
local lock = unpack(KEYS)
local lease, lease_ms, keep_ms, cursor = unpack(ARGV)
if redis.call('HGET', lock, 'lease') ~= lease then return 'lost' end
-- The deadline counts by the server's clock.
redis.call('HSET', lock, 'until', integer(now_ms() + lease_ms))
-- Saved under the lease, so that a listener that lost it cannot move the cursor back.
if cursor ~= '' then
  redis.call('HSET', lock, 'cursor', cursor)
end
redis.call('PEXPIRE', lock, keep_ms)
return 'renewed'
