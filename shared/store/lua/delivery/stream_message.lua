#!lua flags=allow-oom
-- Stores the message that a turn is streamed into, so that the gateway that delivers the chat next
-- edits the same one.
-- KEYS   1 outleases  2 state
-- ARGV   1 session  2 lease  3 turn  4 the platform's id  5 keep the state ms
-- returns 1 noted, -1 the lease is lost
if not holds_lease(KEYS[1], ARGV[1], ARGV[2]) then return -1 end
redis.call('HSET', KEYS[2], 'bubble', ARGV[3] .. ' ' .. ARGV[4])
-- The id is known now, so the key of the doubtful message is not needed.
redis.call('HDEL', KEYS[2], 'meant')
redis.call('PEXPIRE', KEYS[2], ARGV[5])
return 1
