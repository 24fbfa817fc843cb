#!lua flags=allow-oom
-- durable
-- Ends the turn at the head of a chat, and all its subagents.
-- control  the pub/sub channel
-- turn     at the head, as the answer has it (0 = none)
-- returns {'done' | 'known' = answered before | 'changed' = another turn is there, seq of the
--         command's line, 0}
local session, inbox, queue, leases, outbox, live, chats, wake_list = unpack(KEYS)
local name, command, member, control, turn = unpack(ARGV)
command = cmsgpack.unpack(command)
local now = now_ms()
local known = known_command(command, outbox, now)
if known then return known end
local head = redis.call('XRANGE', inbox, '-', '+', 'COUNT', 1)[1]
-- The answer names a turn, so that turn must still be at the head.
if (head and string.match(head[1], '%d+') or '0') ~= turn then return {'changed'} end
cancel_subagents(name, '', '')
stop_head(session, inbox, queue, leases, wake_list, member, control)
return answer_command(command, session, outbox, live, chats, now, 0)
