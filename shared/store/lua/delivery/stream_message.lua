#!lua flags=allow-oom
-- Stores the message that a turn is streamed into, so that the gateway that delivers the chat next
-- edits the same one.
-- returns 'noted', 'lost'
local outleases, state = unpack(KEYS)
local name, lease, turn, id, keep_ms = unpack(ARGV)
if not holds_lease(outleases, name, lease) then return 'lost' end
redis.call('HSET', state, 'bubble', turn .. ' ' .. id)
-- The id is known now, so the key of the doubtful message is not needed.
redis.call('HDEL', state, 'meant')
redis.call('PEXPIRE', state, keep_ms)
return 'noted'
