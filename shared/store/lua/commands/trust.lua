#!lua flags=allow-oom
-- durable
-- Clears the mark of a chat and of its workspace.
-- with_memory     '1' = of its memory, too
-- sources         the mark of the chat as the answer has it, of its files, and of its memory
-- folder          scope of the folder that is trusted, too ('' = none); folder_sources: its mark
-- returns {'done' | 'known' = answered before | 'changed' = there are other marks, seq of the
--         command's line, 0}
local session, outbox, live, chats, memory = unpack(KEYS)
local command, with_memory, sources, file_sources, memory_sources, folder, folder_sources = unpack(ARGV)
command = cmsgpack.unpack(command)
local now = now_ms()
local known = known_command(command, outbox, now)
if known then return known end
-- A person trusts what the answer names, and nothing that was read since.
local marks = redis.call('HMGET', session, 'sources', 'file_sources', 'done', 'trusted', 'began')
local memory_mark = redis.call('HGET', memory, 'sources') or ''
if (marks[1] or '') ~= sources or (marks[2] or '') ~= file_sources or memory_mark ~= memory_sources then
  return {'changed'}
end
if folder ~= '' and (redis.call('HGET', key('memory', folder), 'sources') or '') ~= folder_sources then
  return {'changed'}
end
-- Entries of this conversation so far no longer mark what they are found in or summarised in, but for
-- sources that the answer does not name. An earlier conversation counts only if it was trusted as well.
local began = parse_count(marks[5]) or 0
if (parse_count(marks[4]) or 0) < began then
  redis.call('HSET', session, 'trusted_after', integer(began))
  redis.call('HDEL', session, 'trusted_sources')
end
redis.call('HSET', session, 'trusted', marks[3] or '0')
local with_memory_sources = with_memory == '1' and memory_sources or ''
local with_folder_sources = folder ~= '' and folder_sources or ''
for _, named in ipairs({sources, file_sources, with_memory_sources, with_folder_sources}) do
  add_sources(session, 'trusted_sources', named)
end
redis.call('HDEL', session, 'sources', 'file_sources')
if with_memory == '1' then
  redis.call('HDEL', memory, 'sources')
end
-- An admin trusts the chat's folder for all chats that work on it.
if folder ~= '' then
  redis.call('HDEL', key('memory', folder), 'sources')
end
return answer_command(command, session, outbox, live, chats, now, 0)
