#!lua flags=allow-oom
-- Gives a chat back before all is delivered; it is due again after a while, for any gateway.
-- unclear  '1' = a post may have arrived
-- counts   '1' = it counts as a try
-- returns 'requeued', 'lost'
local outqueue, outleases, state = unpack(KEYS)
local name, lease, delay_ms, unclear, counts, keep_ms = unpack(ARGV)
if not holds_lease(outleases, name, lease) then return 'lost' end
-- Only its own mark is removed, and only when nothing can have been sent under it.
if unclear ~= '1' and string.match(redis.call('HGET', state, 'sending') or '', '%S+$') == lease then
  redis.call('HDEL', state, 'sending')
end
-- The number of tries decides how long the next wait is.
if counts == '1' then
  redis.call('HINCRBY', state, 'tries', 1)
  redis.call('PEXPIRE', state, keep_ms)
end
release_chat(outqueue, outleases, name, tonumber(delay_ms))
return 'requeued'
