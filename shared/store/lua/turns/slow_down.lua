#!lua
-- Writes into a chat's log that messages are refused: at most once a minute to a sender, and once a
-- minute into a chat.
-- KEYS   1 session  2 log  3 live  4 brake of the sender's notice  5 brake of the chat's notice
-- ARGV   1 line  2 keep the session ms  3 keep the log ms  4 '1' = the chat is paused for bots: said once a pause
-- returns 1 said, 0 it was said already
if ARGV[4] == '1' then
  -- Said once in each pause: the field changes, and with it the next comparison.
  if redis.call('HGET', KEYS[1], 'bots') ~= 'paused' then return 0 end
  redis.call('HSET', KEYS[1], 'bots', 'paused and told')
else
  -- One notice a minute to a sender, and one a minute into a chat.
  if redis.call('EXISTS', KEYS[4], KEYS[5]) > 0 then return 0 end
  redis.call('SET', KEYS[4], '1', 'PX', 60000)
  redis.call('SET', KEYS[5], '1', 'PX', 60000)
end
-- Only now: a refused notice must not create a log.
add_line(KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
