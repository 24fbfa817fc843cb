#!lua flags=allow-oom
-- with delivery
-- Releases a chat if it is quiet, which is decided here.
-- KEYS   1 outqueue  2 outleases  3 state  4 outbox  5 outwaits  6 inbox
-- ARGV   1 session  2 lease  3 '1' = though a turn is under way: its next line makes the chat due again
-- returns 1 released, 0 something came, -1 the lease is lost
if not holds_lease(KEYS[2], ARGV[1], ARGV[2]) then return -1 end
-- The inbox exists exactly while a turn runs or waits.
local running = redis.call('EXISTS', KEYS[6]) == 1
-- Decided here, because a line may have come since the gateway looked.
if redis.call('EXISTS', KEYS[4]) == 1 or (running and ARGV[3] ~= '1') then return 0 end
remove_from_outqueue(KEYS[1], KEYS[2], KEYS[3], KEYS[5], ARGV[1], running)
return 1
