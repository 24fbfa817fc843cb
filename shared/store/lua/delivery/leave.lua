#!lua flags=allow-oom
-- Releases a chat if it is quiet, which is decided here.
-- though_running  '1' = though a turn is under way: its next line makes the chat due again
-- returns 'released', 'busy' = something came, 'lost'
local outqueue, outleases, state, outbox, outwaits, inbox = unpack(KEYS)
local name, lease, though_running = unpack(ARGV)
if not holds_lease(outleases, name, lease) then return 'lost' end
-- The inbox exists exactly while a turn runs or waits.
local running = redis.call('EXISTS', inbox) == 1
-- Decided here, because a line may have come since the gateway looked.
if redis.call('EXISTS', outbox) == 1 or (running and though_running ~= '1') then return 'busy' end
remove_from_outqueue(outqueue, outleases, state, outwaits, name, running)
return 'released'
