#!lua flags=allow-oom
-- with trail
-- Revokes a person's access, and every open code of theirs.
-- KEYS   1 who is let in  2 open codes
-- ARGV   1 channel  2 sender  3 who says so  4 lines of the audit record  5 ms of it
-- returns 1 done, 0 they were not let in and had no code
-- The entry of the person, which every gateway asks for.
local gone = redis.call('HDEL', KEYS[1], ARGV[2])
-- A code that is still open would let the person in again.
for _, digest in ipairs(redis.call('HKEYS', KEYS[2])) do
  local one = cmsgpack.unpack(redis.call('HGET', KEYS[2], digest))
  if one.channel == ARGV[1] and one.sender == ARGV[2] and one.request == '' then
    gone = gone + redis.call('HDEL', KEYS[2], digest)
  end
end
if gone == 0 then return 0 end
-- The last one of this channel.
if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('SREM', 'shoal:pair', ARGV[1]) end
audit_line(now_ms(), ARGV[4], ARGV[5],
  {'kind', 'pairing', 'outcome', 'revoked', 'actor', ARGV[3], 'channel', ARGV[1], 'about', ARGV[1] .. ':' .. ARGV[2]})
return 1
