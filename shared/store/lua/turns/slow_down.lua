#!lua
-- Writes into a chat's log that messages are refused: at most once a minute to a sender, and once a
-- minute into a chat.
-- for_bots  '1' = the chat is paused for bots: said once a pause
-- returns 1 said, 0 it was said already
local session, outbox, live, sender_brake, chat_brake = unpack(KEYS)
local line, keep_session_ms, keep_log_ms, for_bots = unpack(ARGV)
if for_bots == '1' then
  -- Said once in each pause: the field changes, and with it the next comparison.
  if redis.call('HGET', session, 'bots') ~= 'paused' then return 0 end
  redis.call('HSET', session, 'bots', 'paused and told')
else
  -- One notice a minute to a sender, and one a minute into a chat.
  if redis.call('EXISTS', sender_brake, chat_brake) > 0 then return 0 end
  redis.call('SET', sender_brake, '1', 'PX', 60000)
  redis.call('SET', chat_brake, '1', 'PX', 60000)
end
-- Only now: a refused notice must not create a log.
add_line(session, outbox, live, line, keep_log_ms)
redis.call('PEXPIRE', session, keep_session_ms)
return 1
