#!lua flags=no-writes,allow-oom
-- with delivery
-- Reads the state of a chat for the gateway that delivers it.
-- KEYS   1 outleases  2 state  3 outbox  4 inbox
-- ARGV   1 session  2 lease  3 lines to hand over
-- returns what a row of delivery/acquire.lua has after its fourth field; -1 the lease is lost
-- What a gateway reads without its lease would be of no use to it.
if not holds_lease(KEYS[1], ARGV[1], ARGV[2]) then return -1 end
return chat_row(KEYS[2], KEYS[3], KEYS[4], ARGV[2], ARGV[3], now_ms())
