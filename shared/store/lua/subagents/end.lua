#!lua flags=allow-oom
-- Ends a subagent, once; its report comes into its session's inbox in the same step.
-- KEYS   1 leases  2 child  3 session  4 inbox  5 queue of turns  6 wake
-- ARGV   1 id  2 lease ('' = in an operator's name: whoever runs it can write nothing more)  3 outcome  4 result
--        5 report  6 schema version  7 keep the session ms
-- returns 1 reported, 2 kept for the turn that waits for it, 3 dropped: its conversation is over, 0 it had ended before,
--         -1 the lease is lost, or there is no such subagent
local fields = redis.call('HMGET', KEYS[2], 'parent', 'state', 'gen', 'wait', 'turn', 'p')
local name, state = fields[1], fields[2]
if not name then return -1 end
-- Ended before, by an earlier call or by another worker.
if state ~= 'queued' and state ~= 'running' then return 0 end
-- An operator needs no lease; the worker that runs it is told to stop.
if ARGV[2] == '' then
  redis.call('PUBLISH', 'shoal:control', 'sub:' .. ARGV[1] .. ' 1')
elseif not holds_lease(KEYS[1], 'sub:' .. ARGV[1], ARGV[2]) then
  return -1
end
-- Before the first write: a subagent that had ended without its report would be lost.
check_chat('hash', KEYS[3])
check_chat('stream', KEYS[4])
check_chat('zset', key('children', name))
check_fleet('zset', KEYS[5])
local now = now_ms()
-- Stored in any case, for a turn that waits and for people who look.
redis.call('HSET', KEYS[2], 'result', ARGV[4])
end_subagent(ARGV[1], name, ARGV[3], now)
-- Its slot is free.
wake_waiting_subagents(name, 1, now)
-- The conversation was ended or forgotten since: a report would begin a new one.
if redis.call('EXISTS', KEYS[3]) == 0 or (redis.call('HGET', KEYS[3], 'gen') or '0') ~= fields[3] then
  return 3
end
-- The turn that spawned it still runs and reads the result itself.
if fields[4] == '1' and (parse_count(redis.call('HGET', KEYS[3], 'done')) or 0) < tonumber(fields[5]) then
  return 2
end
-- No cap applies: there are at most as many reports as subagents, which are counted when spawned.
local counter = parse_count(redis.call('HGET', KEYS[3], 'n'))
-- Mark 'joins': reports that wait together become one turn. The fair key is the spawning turn's.
local n = append(name, KEYS[4], counter, 'v', ARGV[6], 'm', ARGV[5], 'b', 'joins', 'p', fields[6] or '')
redis.call('HSET', KEYS[3], 'n', n)
redis.call('PEXPIRE', KEYS[3], ARGV[7])
enqueue(KEYS[5], KEYS[6], KEYS[3], 'turn:' .. name, n, fields[6], redis.call('XLEN', KEYS[4]) > 1, now, now)
return 1
