#!lua
-- durable
-- Adds the line by which a person rates an answer of a chat.
-- returns 1 done, 0 the chat is gone
local session, outbox, live = unpack(KEYS)
local line, keep_log_ms = unpack(ARGV)
-- A chat that was erased meanwhile must not come back as a log of one line.
if redis.call('EXISTS', session) == 0 then return 0 end
check_chat('stream', outbox)
local seq = add_line(session, outbox, live, line, keep_log_ms, nil, nil, false)
-- Whoever rates an answer has the chat before their eyes: it is not unread elsewhere.
add_own_line_fact(session, seq)
return 1
