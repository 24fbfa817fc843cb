#!lua flags=no-writes,allow-oom
-- with delivery
-- How a chat stands, for whoever delivers it.
-- KEYS   1 outleases  2 state  3 outbox  4 inbox
-- ARGV   1 session  2 lease  3 lines to hand over
-- returns what out_acquire has behind the fourth field of a row; -1 the lease is lost
if not holds(KEYS[1], ARGV[1], ARGV[2]) then return -1 end
return chat_row(KEYS[2], KEYS[3], KEYS[4], ARGV[2], ARGV[3], now_ms())
