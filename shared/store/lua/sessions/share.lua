#!lua
-- Gives a chat a link under which everybody may read it, in place of the one before, or ends it.
-- link    key of the new link's record ('' = none)
-- record  what the session keeps of it, which begins with its id
-- returns 1 done, 0 there is no such session
local session, link = unpack(KEYS)
local name, record, keep_ms = unpack(ARGV)
-- A session that was erased must not come back as a hash that never expires.
if redis.call('EXISTS', session) == 0 then return 0 end
local before = string.match(redis.call('HGET', session, 'share') or '', '^%S+')
if before then
  redis.call('DEL', key('share', before))
end
if link == NO_KEY then
  redis.call('HDEL', session, 'share')
  return 1
end
redis.call('SET', link, name, 'PX', keep_ms)
redis.call('HSET', session, 'share', record)
return 1
