#!lua flags=no-writes,allow-oom
-- Everything that is kept of a session, as it is at one moment.
-- KEYS   1 session  2 inbox  3 history  4 archive  5 log
-- ARGV   1 session  2 '1' = also what was said, else only memory
-- returns {message counter, generation, mark, archive's mark, messages that wait, memory scope, MEMORY.md, its version,
--         {HISTORY.md}, {conversation}, {archive}, {entries of the log}}
local told = redis.call('HMGET', KEYS[1], 'n', 'gen', 'mark', 'archive_mark', 'scope')
local scope = told[5] or 'chat:' .. ARGV[1]
local memory = redis.call('HMGET', key('memory', scope), 'text', 'v')
local read = {
  told[1] or '0', told[2] or '0', told[3] or '0', told[4] or '0', redis.call('XLEN', KEYS[2]),
  scope, memory[1] or '', memory[2] or '0', redis.call('LRANGE', key('memlog', scope), 0, -1), {}, {}, {},
}
if ARGV[2] == '1' then
  read[10] = redis.call('LRANGE', KEYS[3], 0, -1)
  read[11] = redis.call('LRANGE', KEYS[4], 0, -1)
  read[12] = redis.call('XRANGE', KEYS[5], '-', '+')
end
return read
