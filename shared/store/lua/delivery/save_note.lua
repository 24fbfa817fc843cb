#!lua flags=allow-oom
-- Stores the notes of the platform's code about a chat, or reopens the chat.
-- KEYS   1 state
-- ARGV   1 session  2 notes  3 keep the state ms ('' = open the chat, and leave the notes as they are)
-- returns 1 noted or opened, 0 the chat was not closed
-- Without a time to keep it, this is a call to reopen the chat.
if ARGV[3] == '' then
  return reopen_chat(ARGV[1]) and 1 or 0
end
-- Empty notes delete the field, so that the state of a chat may expire.
if ARGV[2] == '' then
  redis.call('HDEL', KEYS[1], 'notes')
else
  redis.call('HSET', KEYS[1], 'notes', ARGV[2])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return 1
