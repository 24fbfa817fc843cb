#!lua
-- Writes a memory, and a conversation if given, into a session, all at once, if the session has not
-- changed since it was read.
-- KEYS   1 session  2 inbox  3 history  4 archive  5 memory  6 HISTORY.md  7 idle  8 rework
--        the lists as the caller has uploaded them: 9 HISTORY.md  10 conversation  11 archive
-- ARGV   1 '1' = replace what is there  2 message counter  3 generation  4 mark  5 archive's mark  6 version of MEMORY.md
--        7 session  8 memory scope  9 keep the session ms  10 keep memory ms
--        11 consolidate after ms without a message  12 write MEMORY.md anew after ms (both: 0 = never)
--        13 MEMORY.md  14 '1' = a conversation, too
--        number of entries and bytes: 15, 16 of HISTORY.md  17, 18 of the conversation  19, 20 of the archive
-- returns 1 done, 0 something is there, -1 the session has changed, or an upload is gone, -2 messages wait for their
--         answers
local session, history, archive, memory, log = KEYS[1], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local talk = ARGV[14] == '1'
local fields = redis.call('HMGET', session, 'n', 'gen', 'mark', 'archive_mark')
-- Nothing may have happened in the session since the caller read it.
for i = 1, 4 do
  if (fields[i] or '0') ~= ARGV[i + 1] then return -1 end
end
local text, version = unpack(redis.call('HMGET', memory, 'text', 'v'))
if (version or '0') ~= ARGV[6] then return -1 end
if talk and redis.call('XLEN', KEYS[2]) > 0 then return -2 end
-- Without --force nothing that exists is replaced.
local occupied = (text or '') ~= '' or redis.call('EXISTS', log) == 1
if talk then
  occupied = occupied or redis.call('EXISTS', history, archive) > 0
end
if occupied and ARGV[1] ~= '1' then return 0 end
-- Uploads expire, and a server may lose its latest writes.
for i = 9, 11 do
  if redis.call('LLEN', KEYS[i]) ~= tonumber(ARGV[2 * i - 3]) then return -1 end
end
-- Replaces a list by an upload, which moves no data; returns its bytes.
local function fill(list, upload)
  redis.call('DEL', list)
  if ARGV[2 * upload - 3] ~= '0' then
    redis.call('RENAME', KEYS[upload], list)
  end
  return ARGV[2 * upload - 2]
end
redis.call('HSET', memory, 'log', fill(log, 9))
set_memory(memory, ARGV[13])
redis.call('PEXPIRE', memory, ARGV[10])
redis.call('PEXPIRE', log, ARGV[10])
if ARGV[12] ~= '0' and ARGV[15] ~= '0' then
  redis.call('ZADD', KEYS[8], 'NX', now_ms() + tonumber(ARGV[12]), ARGV[8])
end
if not talk then return 1 end
-- A consolidation that read the old entries finds other marks and leaves the new ones alone.
redis.call('HINCRBY', session, 'mark', redis.call('LLEN', history))
redis.call('HINCRBY', session, 'archive_mark', redis.call('LLEN', archive))
redis.call('HINCRBY', session, 'gen', 1)
redis.call('HSET', session, 'history', fill(history, 10))
redis.call('HSET', session, 'archive', fill(archive, 11))
for _, list in ipairs({session, history, archive}) do
  redis.call('PEXPIRE', list, ARGV[9])
end
-- An archive is consolidated at once, a conversation when it has been idle.
if ARGV[19] ~= '0' then
  redis.call('ZADD', KEYS[7], now_ms(), ARGV[7])
elseif ARGV[17] ~= '0' and ARGV[11] ~= '0' then
  redis.call('ZADD', KEYS[7], now_ms() + tonumber(ARGV[11]), ARGV[7])
end
return 1
