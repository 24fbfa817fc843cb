#!lua flags=allow-oom
-- with delivery
-- Gives a chat back before all is delivered; it is due again after a while, for any gateway.
-- KEYS   1 outqueue  2 outleases  3 state
-- ARGV   1 session  2 lease  3 delay ms  4 '1' = a post may have arrived  5 '1' = it counts as a try  6 keep the state ms
-- returns 1 put off, -1 the lease is lost
local name, state = ARGV[1], KEYS[3]
if not holds_lease(KEYS[2], name, ARGV[2]) then return -1 end
-- Only its own mark is removed, and only when nothing can have been sent under it.
if ARGV[4] ~= '1' and string.match(redis.call('HGET', state, 'sending') or '', '%S+$') == ARGV[2] then
  redis.call('HDEL', state, 'sending')
end
-- The number of tries decides how long the next wait is.
if ARGV[5] == '1' then
  redis.call('HINCRBY', state, 'tries', 1)
  redis.call('PEXPIRE', state, ARGV[6])
end
release_chat(KEYS[1], KEYS[2], name, tonumber(ARGV[3]))
return 1
