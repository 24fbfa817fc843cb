#!lua flags=allow-oom
-- Stores the notes of the platform's code about a chat.
-- returns 1
local state = unpack(KEYS)
local notes, keep_ms = unpack(ARGV)
-- Empty notes delete the field, so that the state of a chat may expire.
if notes == '' then
  redis.call('HDEL', state, 'notes')
else
  redis.call('HSET', state, 'notes', notes)
  redis.call('PEXPIRE', state, keep_ms)
end
return 1
