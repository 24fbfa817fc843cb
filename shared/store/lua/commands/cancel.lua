#!lua flags=allow-oom
-- durable
-- Ends subagents of a chat.
-- id  of one ('' = all)
-- returns {'done' | 'known' = answered before, seq of the command's line, 0}
local session, outbox, live, chats = unpack(KEYS)
local name, command, id = unpack(ARGV)
command = cmsgpack.unpack(command)
local now = now_ms()
local known = known_command(command, outbox, now)
if known then return known end
cancel_subagents(name, '', id)
return answer_command(command, session, outbox, live, chats, now, 0)
