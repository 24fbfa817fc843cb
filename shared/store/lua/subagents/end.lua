#!lua flags=allow-oom
-- End a subagent, once, and tell its session in the same step: its report comes into the inbox.
-- KEYS   1 leases  2 child  3 session  4 inbox  5 queue of turns  6 wake
-- ARGV   1 id  2 lease ('' = in an operator's name: whoever runs it can write nothing more)  3 outcome  4 result
--        5 report  6 schema version  7 keep the session ms
-- returns 1 reported, 2 kept for the turn that waits for it, 3 dropped: its conversation is over, 0 it had ended before,
--         -1 the lease is lost, or there is no such subagent
local told = redis.call('HMGET', KEYS[2], 'parent', 'state', 'gen', 'wait', 'turn', 'p')
local name, state = told[1], told[2]
if not name then return -1 end
if state ~= 'queued' and state ~= 'running' then return 0 end
if ARGV[2] == '' then
  redis.call('PUBLISH', 'shoal:control', 'sub:' .. ARGV[1] .. ' 1')
elseif not holds(KEYS[1], 'sub:' .. ARGV[1], ARGV[2]) then
  return -1
end

local now = now_ms()
redis.call('HSET', KEYS[2], 'result', ARGV[4])
close_child(ARGV[1], name, ARGV[3], now)
look_at_waiting(name, 1, now)
if redis.call('EXISTS', KEYS[3]) == 0 or (redis.call('HGET', KEYS[3], 'gen') or '0') ~= told[3] then
  return 3
end
if told[4] == '1' and tonumber(redis.call('HGET', KEYS[3], 'done') or 0) < tonumber(told[5]) then
  return 2
end
-- No cap: there are as many reports as subagents at most, and those are counted when they are spawned.
local n = redis.call('HINCRBY', KEYS[3], 'n', 1)
-- Whoever waited for the turn that spawned it waits for its report.
redis.call('XADD', KEYS[4], n .. '-0', 'v', ARGV[6], 'm', ARGV[5], 'b', 'joins', 'p', told[6] or '')
redis.call('PEXPIRE', KEYS[3], ARGV[7])
queue_up(KEYS[5], KEYS[6], KEYS[3], 'turn:' .. name, n, told[6], redis.call('XLEN', KEYS[4]) > 1, now, now)
return 1
