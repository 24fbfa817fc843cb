#!lua flags=allow-oom
-- Replaces the oldest entries of a conversation by an entry of HISTORY.md and, if given, by a new
-- MEMORY.md, all at once.
-- KEYS   1 session  2 conversation (history or archive)  3 memory  4 HISTORY.md  5 rework
-- ARGV   1 the session's field with the mark of this conversation  2 the mark it was read at  3 how many entries go
--        4 the version of MEMORY.md it was made from ('' = it stays as it is)  5 its new text  6 entry
--        7 cap of HISTORY.md in bytes  8 keep memory ms  9 write MEMORY.md anew after ms (0 = never)  10 scope
--        11 the first of the entries
-- returns 1 done, 0 these entries are gone already, -1 MEMORY.md has changed
local session, list, memory, log = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
-- The mark counts entries that ever left at the head: another one means that these are gone.
if (redis.call('HGET', session, ARGV[1]) or '0') ~= ARGV[2] then return 0 end
-- After an erasure the marks begin at 0 again; the first entry tells the conversations apart.
if redis.call('LINDEX', list, 0) ~= ARGV[11] then return 0 end
-- MEMORY.md changed since the model read it.
if ARGV[4] ~= '' and (redis.call('HGET', memory, 'v') or '0') ~= ARGV[4] then return -1 end
-- The bytes that leave the conversation.
local size = 0
local gone = redis.call('LPOP', list, ARGV[3]) or {}
for _, entry in ipairs(gone) do
  size = size + #entry
end
redis.call('HINCRBY', session, ARGV[1], #gone)
-- The field that counts the bytes of this list.
local bytes = ARGV[1] == 'mark' and 'history' or 'archive'
-- An empty list is gone, and so must be its count.
if redis.call('EXISTS', list) == 0 then
  redis.call('HDEL', session, bytes)
else
  redis.call('HINCRBY', session, bytes, -size)
end
if ARGV[6] ~= '' then
  if redis.call('RPUSH', log, ARGV[6]) == 1 then
    redis.call('HSET', memory, 'log', 0)
    -- A version from the beginning: a writer that read the memory as empty must notice an erasure.
    redis.call('HSETNX', memory, 'v', integer(now_us()))
  end
  local kept = redis.call('HINCRBY', memory, 'log', #ARGV[6])
  -- HISTORY.md keeps its newest entries.
  while kept > tonumber(ARGV[7]) and redis.call('LLEN', log) > 1 do
    kept = redis.call('HINCRBY', memory, 'log', -#redis.call('LPOP', log))
  end
end
if ARGV[4] ~= '' then
  set_memory(memory, ARGV[5])
end
redis.call('PEXPIRE', memory, ARGV[8])
redis.call('PEXPIRE', log, ARGV[8])
-- NX: the first change since the last rewrite decides when MEMORY.md is written again.
if ARGV[9] ~= '0' then
  redis.call('ZADD', KEYS[5], 'NX', now_ms() + tonumber(ARGV[9]), ARGV[10])
end
return 1
