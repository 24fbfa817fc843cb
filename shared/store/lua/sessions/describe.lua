#!lua
-- Changes the metadata of a session: short texts of its owner, by name.
-- most_bytes  that all of it may have
-- whole       '1' = names that are not among the changes go
-- changes     MessagePack list of name, text ('' = without it), name, text and so on
-- returns 'done', 'no_session', 'too_big' = it would be
local session = unpack(KEYS)
local most_bytes, whole, changes = unpack(ARGV)
-- A session that was erased must not come back as a hash that never expires.
if redis.call('EXISTS', session) == 0 then return 'no_session' end
local ok, metadata = pcall(cjson.decode, redis.call('HGET', session, 'meta') or '{}')
-- What cannot be read is written anew.
if whole == '1' or not ok or type(metadata) ~= 'table' then metadata = {} end
changes = cmsgpack.unpack(changes)
for i = 1, #changes, 2 do
  metadata[changes[i]] = changes[i + 1] ~= '' and changes[i + 1] or nil
end
local text = cjson.encode(metadata)
if text == '{}' then
  redis.call('HDEL', session, 'meta')
  return 'done'
end
if #text > tonumber(most_bytes) then return 'too_big' end
redis.call('HSET', session, 'meta', text)
return 'done'
