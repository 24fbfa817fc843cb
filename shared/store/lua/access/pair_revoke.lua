#!lua flags=allow-oom
-- durable
-- Revokes a person's access, and every open code of theirs.
-- by  who says so
-- returns 1 done, 0 they were not let in and had no code
local pair, PAIRING = unpack(KEYS)
local channel, sender, by, audit_lines, audit_ms = unpack(ARGV)
-- The entry of the person, which every gateway asks for.
local gone = redis.call('HDEL', pair, sender)
-- A code that is still open would let the person in again.
for _, digest in ipairs(redis.call('HKEYS', PAIRING)) do
  local one = cmsgpack.unpack(redis.call('HGET', PAIRING, digest))
  if one.channel == channel and one.sender == sender and one.request == '' then
    gone = gone + redis.call('HDEL', PAIRING, digest)
  end
end
if gone == 0 then return 0 end
-- The last one of this channel.
if redis.call('EXISTS', pair) == 0 then redis.call('SREM', PREFIX .. 'pair', channel) end
audit_line(now_ms(), audit_lines, audit_ms,
  {'kind', 'pairing', 'outcome', 'revoked', 'actor', by, 'channel', channel, 'about', channel .. ':' .. sender})
return 1
