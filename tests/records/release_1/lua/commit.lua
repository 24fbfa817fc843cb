#!lua flags=allow-oom
-- End a turn: history, lines for the chat, dead letter, inbox, ledger and lease change together.
-- KEYS   1 queue  2 leases  3 wake  4 session  5 inbox  6 ledger  7 history  8 log  9 live  10 dead letters
-- ARGV   1 member  2 lease  3 n  4 history cap in bytes  5 keep the session ms  6 keep the log ms
--        7 record of a dead letter  8 its reason ('' = none)  9 live event  10 number of history entries, the entries, then the lines
-- returns 1 committed, 0 this turn was committed before, -1 the lease is lost
local session, inbox, history = KEYS[4], KEYS[5], KEYS[7]
local member, n = ARGV[1], ARGV[3]
if tonumber(redis.call('HGET', session, 'done') or 0) >= tonumber(n) then return 0 end
if not holds(KEYS[2], member, ARGV[2]) then return -1 end

local entries = tonumber(ARGV[10])
local size = 0
for i = 11, 10 + entries do
  redis.call('RPUSH', history, ARGV[i])
  size = size + #ARGV[i]
end
size = redis.call('HINCRBY', session, 'history', size)
while size > tonumber(ARGV[4]) and redis.call('LLEN', history) > 1 do
  size = redis.call('HINCRBY', session, 'history', -#redis.call('LPOP', history))
end
for i = 11 + entries, #ARGV do
  add_line(session, KEYS[8], KEYS[9], ARGV[i], ARGV[6])
end
if ARGV[8] ~= '' then
  redis.call('XADD', KEYS[10], 'MAXLEN', '~', 10000, '*', 'member', member, 'n', n, 'reason', ARGV[8], 'm', ARGV[7])
  redis.call('XTRIM', KEYS[10], 'MINID', integer(now_ms() - 30 * 86400000))
end

redis.call('XDEL', inbox, n .. '-0')
redis.call('DEL', KEYS[6])
redis.call('HSET', session, 'done', n)
redis.call('HDEL', session, 'errors', 'crashes', 'tries', 'away', 'ledger')
if redis.call('HGET', session, 'stop') == n then
  redis.call('HDEL', session, 'stop')
end
redis.call('PEXPIRE', session, ARGV[5])
redis.call('PEXPIRE', history, ARGV[5])
redis.call('HDEL', KEYS[2], member)
if redis.call('XLEN', inbox) == 0 then
  redis.call('DEL', inbox)
  redis.call('ZREM', KEYS[1], member)
else
  -- To the tail: one busy chat does not keep a slot.
  redis.call('ZADD', KEYS[1], now_ms(), member)
  wake(KEYS[3])
end
redis.call('PUBLISH', KEYS[9], ARGV[9])
return 1
