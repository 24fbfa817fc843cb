#!lua flags=allow-oom
-- durable
-- Stores a step of a running turn that starts a subagent, and queues the subagent.
-- name              the session
-- step              counted from 1
-- cap_bytes         of the ledger
-- id, task          of the subagent: its id, its record, and the schema version of that
-- waits             '1' = the turn waits for it
-- n                 the turn
-- most_of_turn      how many a turn may start
-- most_of_session   how many of a session may be there that have not ended
-- returns 'written', 'known' = it was written before, 'lost', 'full' = the ledger is, 'turn_full' =
--         the turn has started enough, 'session_full' = the session has, 'stopped' = the turn was
--         told to stop before
local leases, session, ledger, queue, wake_list, inbox, child, children, SUBAGENTS, jobs, subagent_wake =
  unpack(KEYS)
local name, member, lease, step, record, cap_bytes, id, task, version, waits, n, most_of_turn,
  most_of_session = unpack(ARGV)
local refused = step_refusal(leases, ledger, queue, wake_list, member, lease, step)
if refused then return refused end
-- Every refusal comes before the first write.
check_chat('zset', children)
check_fleet('zset', SUBAGENTS, jobs)
-- A turn that was told to stop but has not read it yet must leave no subagent behind.
local fields = redis.call('HMGET', session, 'stop', 'cut', 'spawned', 'gen', 'preset')
if fields[1] == n or (parse_count(fields[2]) or 0) > tonumber(n) then return 'stopped' end
-- `spawned` is `<turn> <count>`; the count of an earlier turn does not matter.
local of, count = string.match(fields[3] or '', '(%d+) (%d+)')
local spawned = of == n and tonumber(count) or 0
if spawned >= tonumber(most_of_turn) then return 'turn_full' end
-- A score of 0 or more means that a subagent has not ended.
if redis.call('EXISTS', child) == 1 or redis.call('ZCOUNT', children, 0, '+inf') >= tonumber(most_of_session) then
  return 'session_full'
end
-- The step and its effect are one atomic change: neither exists without the other.
if not write_step(session, ledger, step, record, cap_bytes, 0) then return 'full' end
local now = integer(now_ms())
local head = redis.call('XRANGE', inbox, '-', '+', 'COUNT', 1)[1]
-- Counted per turn, so that a repeated attempt of the turn cannot exceed its limit.
redis.call('HSET', session, 'spawned', n .. ' ' .. spawned + 1)
-- The subagent inherits what its parent knows at this moment. gen: the parent's generation; a
-- report to
-- an older one is dropped. p: whose turn the report is.
redis.call('HSET', child, 'm', task, 'v', version, 'parent', name, 'turn', n, 'gen', fields[4] or '0',
  'preset', fields[5] or '', 'wait', waits, 'state', 'queued', 'spawned', now, 'p', head and field(head, 'p') or '')
-- A positive score: it waits for a slot since then.
redis.call('ZADD', children, now, id)
-- The list had an expiry if every earlier subagent ended.
redis.call('PERSIST', children)
redis.call('ZADD', SUBAGENTS, now, id)
describe_subagent(id)
redis.call('ZADD', jobs, now, 'sub:' .. id)
wake(subagent_wake)
return 'written'
