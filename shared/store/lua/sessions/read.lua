#!lua flags=no-writes,allow-oom
-- Reads what a session consists of, without its lists, which the caller reads in pages: all of them at
-- once would hold the server up. If this answers the same afterwards, they are of one moment.
-- KEYS   1 session  2 inbox  3 history  4 archive
-- ARGV   1 session
-- returns {message counter, generation, mark, archive's mark, messages that wait, memory scope, MEMORY.md, its version,
--         entries of the conversation, of the archive, bytes of HISTORY.md, newest line of the log}
local fields = redis.call('HMGET', KEYS[1], 'n', 'gen', 'mark', 'archive_mark', 'scope', 'log')
-- The chat's own memory unless a message chose another scope.
local scope = fields[5] or 'chat:' .. ARGV[1]
local memory = redis.call('HMGET', key('memory', scope), 'text', 'v', 'log')
return {
  fields[1] or '0', fields[2] or '0', fields[3] or '0', fields[4] or '0', redis.call('XLEN', KEYS[2]),
  scope, memory[1] or '', memory[2] or '0',
  redis.call('LLEN', KEYS[3]), redis.call('LLEN', KEYS[4]), memory[3] or '0', fields[6] or '0',
}
