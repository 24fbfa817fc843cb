#!lua flags=allow-oom
-- durable
-- Gives a memory an earlier text of it.
-- earlier  version of the text
-- returns {'done' | 'known' = answered before | 'changed' = it has no such text, seq of the
--         command's line, 0}
local session, outbox, live, chats, memory = unpack(KEYS)
local command, earlier = unpack(ARGV)
command = cmsgpack.unpack(command)
local now = now_ms()
local known = known_command(command, outbox, now)
if known then return known end
-- Only a text that it had: a repeated answer finds the newest there already.
local text = redis.call('HGET', memory, 'old:' .. earlier)
if not text then return {'changed'} end
local marks = redis.call('HGET', memory, 'mark:' .. earlier)
set_memory(memory, text)
add_sources(memory, 'sources', marks or '')
return answer_command(command, session, outbox, live, chats, now, 0)
