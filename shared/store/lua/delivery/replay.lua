#!lua
-- Put the line of a dead letter back, behind what waits in its chat's outbox, and drop the letter.
-- KEYS   1 dead letters  2 session  3 outbox  4 live
-- ARGV   1 id of the letter  2 keep the line ms  3 keep the session ms
-- returns the number of the line, 0 = the letter is gone
local letter = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])[1]
if not letter then return 0 end
-- A new number: the line comes after what waits in the chat.
local seq = add_line(KEYS[2], KEYS[3], KEYS[4], field(letter, 'm'), ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
-- In the same step, so that a letter is replayed once.
redis.call('XDEL', KEYS[1], ARGV[1])
return seq
