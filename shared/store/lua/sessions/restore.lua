#!lua
-- durable
-- Writes a memory, and a conversation if given, into a session, all at once, if the session has not
-- changed since it was read.
-- ..._upload      the lists as the caller has uploaded them; ..._many and ..._bytes say what they
--                 must have
-- replace         '1' = replace what is there
-- n to version    the message counter, generation, marks and version of MEMORY.md as they were read
-- name, scope     of the session, and of its memory
-- idle_ms         consolidate after this time without a message; rework_ms: write MEMORY.md anew
--                 after it (0 = never)
-- talk            '1' = a conversation, too, '2' = and its transcript
-- memory_sources  what marks the memory; sources: what marks the conversation
-- created         and updated, meta: '' = unknown, or none
-- returns 'done', 'occupied' = something is there, 'changed' = the session has, or an upload is
--         gone, 'waiting' = messages wait for their answers
local session, inbox, history, archive, memory, memlog, IDLE, REWORK, memlog_upload,
  history_upload, archive_upload, pages_upload = unpack(KEYS)
local replace, n, gen, mark, archive_mark, version, name, scope, keep_session_ms, keep_memory_ms,
  idle_ms, rework_ms, memory_md, talk, memlog_many, memlog_bytes, history_many, history_bytes,
  archive_many, archive_bytes, pages_many, pages_bytes, memory_sources, sources, created, updated,
  meta, keep_pages_ms = unpack(ARGV)
local with_talk, transcript = talk ~= '0', talk == '2' and key('transcript', name)
local fields = redis.call('HMGET', session, 'n', 'gen', 'mark', 'archive_mark')
-- Nothing may have happened in the session since the caller read it.
for i, read in ipairs({n, gen, mark, archive_mark}) do
  if (fields[i] or '0') ~= read then return 'changed' end
end
local text, has = unpack(redis.call('HMGET', memory, 'text', 'v'))
if (has or '0') ~= version then return 'changed' end
if with_talk and redis.call('XLEN', inbox) > 0 then return 'waiting' end
-- Without --force nothing that exists is replaced.
local occupied = (text or '') ~= '' or redis.call('EXISTS', memlog) == 1
if with_talk then
  occupied = occupied or redis.call('EXISTS', history, archive, transcript or history) > 0
end
if occupied and replace ~= '1' then return 'occupied' end
-- Uploads expire, and a server may lose its latest writes.
for upload, many in pairs({
  [memlog_upload] = memlog_many, [history_upload] = history_many, [archive_upload] = archive_many,
  [pages_upload] = pages_many,
}) do
  if redis.call('LLEN', upload) ~= tonumber(many) then return 'changed' end
end
-- Replaces a list by an upload, which moves no data.
local function fill(list, upload, many)
  redis.call('DEL', list)
  if many ~= '0' then
    redis.call('RENAME', upload, list)
  end
end
fill(memlog, memlog_upload, memlog_many)
redis.call('HSET', memory, 'log', memlog_bytes)
set_memory(memory, memory_md)
-- The mark belongs to the text: that of the old text goes with it.
redis.call('HSET', memory, 'sources', '')
add_sources(memory, 'sources', memory_sources)
redis.call('PEXPIRE', memory, keep_memory_ms)
redis.call('PEXPIRE', memlog, keep_memory_ms)
if rework_ms ~= '0' and memlog_many ~= '0' then
  redis.call('ZADD', REWORK, 'NX', now_ms() + tonumber(rework_ms), scope)
end
if not with_talk then return 'done' end
-- A consolidation that read the old entries finds other marks and leaves the new ones alone.
redis.call('HINCRBY', session, 'mark', redis.call('LLEN', history))
redis.call('HINCRBY', session, 'archive_mark', redis.call('LLEN', archive))
redis.call('HINCRBY', session, 'gen', 1)
fill(history, history_upload, history_many)
fill(archive, archive_upload, archive_many)
redis.call('HSET', session, 'history', history_bytes, 'archive', archive_bytes, 'sources', '')
add_sources(session, 'sources', sources)
-- A conversation brings its age and metadata along, or takes those of the replaced one away.
for field, value in pairs({created = created, updated = updated, meta = meta}) do
  if value ~= '' then
    redis.call('HSET', session, field, value)
  else
    redis.call('HDEL', session, field)
  end
end
-- Turns that a person trusted have nothing to do with the turns of these entries.
redis.call('HDEL', session, 'trusted', 'trusted_after', 'trusted_sources')
if transcript then
  redis.call('DEL', transcript)
  for _, page in ipairs(redis.call('LRANGE', pages_upload, 0, -1)) do
    redis.call('XADD', transcript, '*', 'z', page)
  end
  redis.call('PEXPIRE', transcript, keep_pages_ms)
  redis.call('HSET', session, 'transcript', pages_bytes)
end
for _, list in ipairs({session, history, archive}) do
  redis.call('PEXPIRE', list, keep_session_ms)
end
-- An archive is consolidated at once, a conversation when it has been idle.
if archive_many ~= '0' then
  redis.call('ZADD', IDLE, now_ms(), name)
elseif history_many ~= '0' and idle_ms ~= '0' then
  redis.call('ZADD', IDLE, now_ms() + tonumber(idle_ms), name)
end
return 'done'
