#!lua flags=allow-oom
-- durable
-- Ends a subagent, once; its report comes into its session's inbox in the same step.
-- lease    '' = in an operator's name: whoever runs it can write nothing more
-- version  schema version of the report
-- sources  what marks the result
-- returns 'reported', 'kept' for the turn that waits for it, 'dropped' = its conversation is over,
--         'known' = it had ended before, 'lost' = the lease is, or there is no such subagent
local leases, child, session, inbox, turns, turns_wake = unpack(KEYS)
local id, lease, outcome, result, report, version, keep_session_ms, sources = unpack(ARGV)
local fields = redis.call('HMGET', child, 'parent', 'state', 'gen', 'wait', 'turn', 'p')
local name, state = fields[1], fields[2]
if not name then return 'lost' end
-- Ended before, by an earlier call or by another worker.
if state ~= 'queued' and state ~= 'running' then return 'known' end
-- An operator needs no lease; the worker that runs it is told to stop.
if lease == '' then
  redis.call('PUBLISH', PREFIX .. 'control', 'sub:' .. id .. ' 1')
elseif not holds_lease(leases, 'sub:' .. id, lease) then
  return 'lost'
end
-- Before the first write: a subagent that had ended without its report would be lost.
check_chat('hash', session)
check_chat('stream', inbox)
check_chat('zset', key('children', name))
check_fleet('zset', turns)
local now = now_ms()
-- Stored in any case, for a turn that waits and for people who look.
redis.call('HSET', child, 'result', result, 'sources', sources)
end_subagent(id, name, outcome, now)
-- Its slot is free.
wake_waiting_subagents(name, 1, now)
-- The conversation was ended or forgotten since: a report would begin a new one.
if redis.call('EXISTS', session) == 0 or (redis.call('HGET', session, 'gen') or '0') ~= fields[3] then
  return 'dropped'
end
-- The turn that spawned it still runs and reads the result itself.
if fields[4] == '1' and (parse_count(redis.call('HGET', session, 'done')) or 0) < tonumber(fields[5]) then
  return 'kept'
end
-- No cap applies: there are at most as many reports as subagents, which are counted when spawned.
local counter = parse_count(redis.call('HGET', session, 'n'))
-- Mark 'joins': reports that wait together become one turn. The fair key is the spawning turn's.
local n = append(name, inbox, counter, 'v', version, 'm', report, 'b', 'joins', 'p', fields[6] or '')
redis.call('HSET', session, 'n', n)
add_fact(name, 'running', 1)
redis.call('PEXPIRE', session, keep_session_ms)
enqueue(turns, turns_wake, session, 'turn:' .. name, n, fields[6], redis.call('XLEN', inbox) > 1, now, now)
return 'reported'
