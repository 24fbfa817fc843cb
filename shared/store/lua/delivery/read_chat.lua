#!lua flags=no-writes,allow-oom
-- Reads the state of a chat for the gateway that delivers it.
-- returns what a row of delivery/acquire.lua has after its fourth field; 'lost'
local outleases, state, outbox, inbox = unpack(KEYS)
local name, lease, lines = unpack(ARGV)
-- What a gateway reads without its lease would be of no use to it.
if not holds_lease(outleases, name, lease) then return 'lost' end
return chat_row(state, outbox, inbox, lease, lines, now_ms())
