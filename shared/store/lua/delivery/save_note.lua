#!lua flags=allow-oom
-- Note what the platform's code wants to know of a chat, or that it may be written to again.
-- KEYS   1 state
-- ARGV   1 session  2 notes  3 keep the state ms ('' = open the chat, and leave the notes as they are)
-- returns 1 noted or opened, 0 the chat was not closed
if ARGV[3] == '' then
  return open_chat(ARGV[1]) and 1 or 0
end
if ARGV[2] == '' then
  redis.call('HDEL', KEYS[1], 'notes')
else
  redis.call('HSET', KEYS[1], 'notes', ARGV[2])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return 1
