#!lua flags=no-writes,allow-oom
-- Reads what a session consists of, without its lists, which the caller reads in pages: all of them
-- at
-- once would hold the server up. If this answers the same afterwards, they are of one moment.
-- name  the session
-- returns {message counter, generation, mark, archive's mark, messages that wait, memory scope,
--         MEMORY.md, its version, entries of the conversation, of the archive, bytes of HISTORY.md,
--         newest line of the log, sources that mark the memory, created, updated, metadata, newest
--         page of the transcript}
local session, inbox, history, archive = unpack(KEYS)
local name = unpack(ARGV)
local fields = redis.call('HMGET', session, 'n', 'gen', 'mark', 'archive_mark', 'scope', 'log', 'created', 'updated',
  'meta')
-- The chat's own memory unless a message chose another scope.
local scope = fields[5] or 'chat:' .. name
local page = guarded('XREVRANGE', key('transcript', name), '+', '-', 'COUNT', 1) or {}
local memory = redis.call('HMGET', key('memory', scope), 'text', 'v', 'log', 'sources')
return {
  fields[1] or '0', fields[2] or '0', fields[3] or '0', fields[4] or '0', redis.call('XLEN', inbox),
  scope, memory[1] or '', memory[2] or '0',
  redis.call('LLEN', history), redis.call('LLEN', archive), memory[3] or '0', fields[6] or '0',
  memory[4] or '', fields[7] or '', fields[8] or '', fields[9] or '', page[1] and page[1][1] or '',
}
