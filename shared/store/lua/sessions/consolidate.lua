#!lua flags=allow-oom
-- durable
-- Replaces the oldest entries of a conversation by an entry of HISTORY.md and, if given, by a new
-- MEMORY.md, and moves them to the transcript, all at once.
-- list            the conversation: history or archive
-- mark_field      the session's field with the mark of this conversation; mark: the one it was read
--                 at
-- many            how many entries go; first: the first of them
-- version         of MEMORY.md that the text was made from ('' = it stays as it is); text: its new
--                 text
-- entry           of HISTORY.md ('' = none)
-- memlog_bytes    cap of HISTORY.md
-- rework_ms       write MEMORY.md anew after this time (0 = never), as soon as HISTORY.md has
--                 rework_entries
-- scope           of the memory
-- sources         what marked the entries, and from now on marks this memory
-- pages_bytes     cap of the transcript
-- pages           MessagePack list of the entries as pages (empty = they are not kept)
-- returns 'done', 'gone' = these entries are already, 'changed' = MEMORY.md is another one
local session, list, memory, memlog, REWORK = unpack(KEYS)
local mark_field, mark, many, version, text, entry, memlog_bytes, keep_memory_ms, rework_ms, scope,
  first, sources, pages_bytes, keep_pages_ms, rework_entries, pages = unpack(ARGV)
-- The mark counts entries that ever left at the head: another one means that these are gone.
if (redis.call('HGET', session, mark_field) or '0') ~= mark then return 'gone' end
-- After an erasure the marks begin at 0 again; the first entry tells the conversations apart.
if redis.call('LINDEX', list, 0) ~= first then return 'gone' end
-- MEMORY.md changed since the model read it.
if version ~= '' and (redis.call('HGET', memory, 'v') or '0') ~= version then return 'changed' end
-- Nothing may fail between two writes, or entries would be lost. Its name is made here: an older
-- list
-- of Redis users does not allow this key, and with it all goes on without a transcript.
local transcript = key('transcript', key_id(session))
pages = cmsgpack.unpack(pages)
local probe = #pages > 0 and redis.pcall('XLEN', transcript)
if type(probe) == 'number' then
  -- First the pages: from here on the entries are in the transcript.
  add_pages(session, transcript, pages, tonumber(pages_bytes), tonumber(keep_pages_ms))
elseif probe and string.find(probe.err, 'WRONGTYPE', 1, true) then
  check_chat('stream', transcript)
end
-- The bytes that leave the conversation.
local size = 0
local gone = redis.call('LPOP', list, many) or {}
for _, entry in ipairs(gone) do
  size = size + #entry
end
redis.call('HINCRBY', session, mark_field, #gone)
-- The field that counts the bytes of this list.
local bytes = mark_field == 'mark' and 'history' or 'archive'
-- An empty list is gone, and so must be its count.
if redis.call('EXISTS', list) == 0 then
  redis.call('HDEL', session, bytes)
else
  redis.call('HINCRBY', session, bytes, -size)
end
if entry ~= '' then
  if redis.call('RPUSH', memlog, entry) == 1 then
    redis.call('HSET', memory, 'log', 0)
    -- A version from the beginning: a writer that read the memory as empty must notice an erasure.
    redis.call('HSETNX', memory, 'v', integer(now_us()))
  end
  local kept = redis.call('HINCRBY', memory, 'log', #entry)
  -- HISTORY.md keeps its newest entries.
  while kept > tonumber(memlog_bytes) and redis.call('LLEN', memlog) > 1 do
    kept = redis.call('HINCRBY', memory, 'log', -#redis.call('LPOP', memlog))
  end
end
if version ~= '' then
  set_memory(memory, text)
end
-- A summary of strangers' text is their text.
if version ~= '' or entry ~= '' then
  add_sources(memory, 'sources', sources)
end
redis.call('PEXPIRE', memory, keep_memory_ms)
redis.call('PEXPIRE', memlog, keep_memory_ms)
-- NX: the first change since the last rewrite decides when MEMORY.md is written again.
if rework_ms ~= '0' and redis.call('LLEN', memlog) >= tonumber(rework_entries) then
  redis.call('ZADD', REWORK, 'NX', now_ms() + tonumber(rework_ms), scope)
end
return 'done'
