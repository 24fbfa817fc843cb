#!lua
-- Holds a part of an album that does not address the bot, in case that another part does.
-- album    the platform's id of it
-- keep_ms  how long the part is held
-- returns 1 = a part that does was announced already, and nothing is held; 0
local album_parts, held = unpack(KEYS)
local album, record, keep_ms = unpack(ARGV)
if guarded('ZSCORE', album_parts, album) then return 1 end
guarded('RPUSH', held, record)
guarded('PEXPIRE', held, keep_ms)
return 0
