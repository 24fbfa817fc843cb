#!lua flags=no-writes,allow-oom
-- Reads everything that is kept of a session, as it is at one moment.
-- KEYS   1 session  2 inbox  3 history  4 archive  5 log
-- ARGV   1 session  2 '1' = also what was said, else only memory
-- returns {message counter, generation, mark, archive's mark, messages that wait, memory scope, MEMORY.md, its version,
--         {HISTORY.md}, {conversation}, {archive}, {entries of the log}}
local fields = redis.call('HMGET', KEYS[1], 'n', 'gen', 'mark', 'archive_mark', 'scope')
-- The chat's own memory unless a message chose another scope.
local scope = fields[5] or 'chat:' .. ARGV[1]
local memory = redis.call('HMGET', key('memory', scope), 'text', 'v')
local read = {
  fields[1] or '0', fields[2] or '0', fields[3] or '0', fields[4] or '0', redis.call('XLEN', KEYS[2]),
  scope, memory[1] or '', memory[2] or '0', redis.call('LRANGE', key('memlog', scope), 0, -1), {}, {}, {},
}
if ARGV[2] == '1' then
  read[10] = redis.call('LRANGE', KEYS[3], 0, -1)
  read[11] = redis.call('LRANGE', KEYS[4], 0, -1)
  read[12] = redis.call('XRANGE', KEYS[5], '-', '+')
end
return read
