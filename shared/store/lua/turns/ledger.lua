#!lua flags=allow-oom
-- Writes one step of the running turn before the step is carried out. The same step again changes
-- nothing.
-- KEYS   1 leases  2 session  3 ledger  4 queue  5 wake, then those of the effect
-- ARGV   1 member  2 lease  3 step, counted from 1  4 record  5 cap in bytes  6 effect ('' = none), then what it takes:
--        say    KEYS 6 session  7 log  8 live  9 history of the chat that it is said to
--               10 the list of chats in which it moves up ('' = it stays where it is)
--               ARGV 7 line  8 keep the log ms  9 chat id  10 keep the session ms  11 history cap in bytes,
--               then what its history gains
--        spawn  KEYS 6 child  7 children  8 subagents  9 queue of jobs  10 wake of subagents
--               ARGV 7 id  8 record  9 schema version  10 '1' = the turn waits for it  11 the turn
--               12 how many a turn may spawn  13 how many of a session may be there that have not ended
-- returns 1 written, 0 it was there already, -1 the lease is lost, -2 the ledger is full, -3 there is no such chat,
--         -4 the turn has spawned enough, -5 the session has, -6 the turn was told to stop before it spawned
-- The fence comes first: a worker that lost its lease must not write a step.
if not holds_lease(KEYS[1], ARGV[1], ARGV[2]) then return -1 end
-- Steps are numbered without gaps, so the length of the ledger is the number of the last step.
local have = redis.call('XLEN', KEYS[3])
-- Written before: the reply was lost.
if have >= tonumber(ARGV[3]) then return 0 end
if have < tonumber(ARGV[3]) - 1 then
  -- The server lost steps that it had confirmed. A ledger with a hole would mislead the next
  -- worker, so the lease ends: a successor begins at once, where the ledger really ends.
  redis.call('HDEL', KEYS[1], ARGV[1])
  redis.call('ZADD', KEYS[4], now_ms(), ARGV[1])
  wake_for(ARGV[1], KEYS[5])
  return -1
end
-- Nothing is created by talking to a chat that does not exist.
if ARGV[6] == 'say' then
  if redis.call('EXISTS', KEYS[6]) == 0 then return -3 end
  -- A step without its effect would count as done: both or neither.
  check_chat('hash', KEYS[6])
  check_chat('stream', KEYS[7])
  check_chat('list', KEYS[9])
end
local spawned = 0
-- Every refusal comes before the first write.
if ARGV[6] == 'spawn' then
  check_chat('zset', KEYS[7])
  check_fleet('zset', KEYS[8], KEYS[9])
  -- A turn that was told to stop but has not read it yet must leave no subagent behind.
  local fields = redis.call('HMGET', KEYS[2], 'stop', 'cut')
  if fields[1] == ARGV[11] or (parse_count(fields[2]) or 0) > tonumber(ARGV[11]) then return -6 end
  -- `spawned` is `<turn> <count>`; the count of an earlier turn does not matter.
  local of, count = string.match(redis.call('HGET', KEYS[2], 'spawned') or '', '(%d+) (%d+)')
  spawned = of == ARGV[11] and tonumber(count) or 0
  if spawned >= tonumber(ARGV[12]) then return -4 end
  -- A score of 0 or more means that a subagent has not ended.
  if redis.call('EXISTS', KEYS[6]) == 1 or redis.call('ZCOUNT', KEYS[7], 0, '+inf') >= tonumber(ARGV[13]) then
    return -5
  end
end
-- The text that is said counts against the cap, too; otherwise one turn could fill a log.
local weight = #ARGV[4] + (ARGV[6] == 'say' and #ARGV[7] or 0)
local size = count_up(KEYS[2], 'ledger', weight)
-- Book first, undo if it was too much: two steps never race, because a script runs alone.
if size > tonumber(ARGV[5]) then
  redis.call('HINCRBY', KEYS[2], 'ledger', -weight)
  return -2
end
-- The step and its effect are one atomic change: neither exists without the other.
redis.call('XADD', KEYS[3], ARGV[3] .. '-0', 'm', ARGV[4])
-- The line goes to the log of the chat now, before the turn ends.
if ARGV[6] == 'say' then
  add_line(KEYS[6], KEYS[7], KEYS[8], ARGV[7], ARGV[8])
  -- The other chat moves up in its person's list.
  if KEYS[10] ~= '' then
    list_chat(KEYS[6], KEYS[10], ARGV[9], '', ARGV[10], now_ms())
    redis.call('PEXPIRE', KEYS[6], ARGV[10])
  end
  -- A later turn over there finds in its conversation what was said to it.
  if #ARGV >= 12 then
    local had = parse_count(redis.call('HGET', KEYS[6], 'history')) or 0
    local _, _, has = add_history(KEYS[6], KEYS[9], 12, #ARGV, tonumber(ARGV[11]), had)
    redis.call('HSET', KEYS[6], 'history', integer(has))
    redis.call('PEXPIRE', KEYS[9], ARGV[10])
  end
end
-- The subagent inherits what its parent knows at this moment.
if ARGV[6] == 'spawn' then
  local now, member = integer(now_ms()), 'sub:' .. ARGV[7]
  local about = redis.call('HMGET', KEYS[2], 'gen', 'preset')
  local head = redis.call('XRANGE', key('inbox', string.sub(ARGV[1], 6)), '-', '+', 'COUNT', 1)[1]
  -- Counted per turn, so that a repeated attempt of the turn cannot exceed its limit.
  redis.call('HSET', KEYS[2], 'spawned', ARGV[11] .. ' ' .. spawned + 1)
  -- gen: the parent's generation; a report to an older one is dropped. p: whose turn the report is.
  redis.call('HSET', KEYS[6], 'm', ARGV[8], 'v', ARGV[9], 'parent', string.sub(ARGV[1], 6), 'turn', ARGV[11],
    'gen', about[1] or '0', 'preset', about[2] or '', 'wait', ARGV[10], 'state', 'queued', 'spawned', now,
    'p', head and field(head, 'p') or '')
  -- A positive score: it waits for a slot since then.
  redis.call('ZADD', KEYS[7], now, ARGV[7])
  -- The list had an expiry if every earlier subagent ended.
  redis.call('PERSIST', KEYS[7])
  redis.call('ZADD', KEYS[8], now, ARGV[7])
  redis.call('ZADD', KEYS[9], now, member)
  wake(KEYS[10])
end
-- Progress was made: whatever killed earlier attempts was not this message alone.
redis.call('HDEL', KEYS[2], 'crashes', 'spared')
return 1
