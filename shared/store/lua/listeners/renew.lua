#!lua flags=allow-oom
-- Renews a lock, and stores how far its holder has read if given.
-- KEYS   1 lock
-- ARGV   1 lease  2 lease ms  3 keep it ms  4 cursor (may be missing)
-- returns 1 kept, -1 it is lost
if redis.call('HGET', KEYS[1], 'lease') ~= ARGV[1] then return -1 end
-- The deadline counts by the server's clock.
redis.call('HSET', KEYS[1], 'until', integer(now_ms() + ARGV[2]))
-- Saved under the lease, so that a listener that lost it cannot move the cursor back.
if ARGV[4] then
  redis.call('HSET', KEYS[1], 'cursor', ARGV[4])
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
