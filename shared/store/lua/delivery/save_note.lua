#!lua flags=allow-oom
-- Stores the notes of the platform's code about a chat.
-- KEYS   1 state
-- ARGV   1 notes  2 keep the state ms
-- returns 1
-- Empty notes delete the field, so that the state of a chat may expire.
if ARGV[1] == '' then
  redis.call('HDEL', KEYS[1], 'notes')
else
  redis.call('HSET', KEYS[1], 'notes', ARGV[1])
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1
