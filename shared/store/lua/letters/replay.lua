#!lua
-- Put the line of a dead letter back, behind what waits in its chat's outbox, and drop the letter.
-- returns the number of the line, 0 = the letter is gone
local DEAD, session, outbox, live = unpack(KEYS)
local id, keep_line_ms, keep_session_ms = unpack(ARGV)
local letter = redis.call('XRANGE', DEAD, id, id)[1]
if not letter then return 0 end
-- A new number: the line comes after what waits in the chat.
local seq = add_line(session, outbox, live, field(letter, 'm'), keep_line_ms)
redis.call('PEXPIRE', session, keep_session_ms)
-- In the same step, so that a letter is replayed once.
redis.call('XDEL', DEAD, id)
return seq
