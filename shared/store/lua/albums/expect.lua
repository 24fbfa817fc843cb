#!lua
-- Announces a part of an album before its file is fetched: the turn of the parts that came before
-- it waits for it.
-- album      the platform's id of it
-- seen       prefix of the hashes of seen ids; they are remembered for this many days
-- within_ms  how long it is waited for, should the gateway die
-- keep_ms    how long the album is known, for parts that come late
-- returns {'expected' | 'known' = the part was accepted before, the parts that are held}
local album_parts, held, inbox, session, queue, leases = unpack(KEYS)
local album, dedupe_id, seen, days, member, within_ms, keep_ms = unpack(ARGV)
local now = now_ms()
if seen_before(seen, tonumber(days), dedupe_id, now) then return {'known', {}} end
-- A chat may see albums all day, so the key alone would not end.
guarded('ZREMRANGEBYSCORE', album_parts, '-inf', integer(now - keep_ms))
-- Where this key is broken, no part waits for another one, but each is accepted.
guarded('ZADD', album_parts, 'NX', integer(now), album)
guarded('ZADD', album_parts, integer(now + within_ms), album_part(album, dedupe_id))
guarded('PEXPIRE', album_parts, keep_ms)
move_album(queue, leases, inbox, session, member, album, album_due(album_parts, album, now))
return {'expected', guarded('LRANGE', held, 0, -1) or {}}
