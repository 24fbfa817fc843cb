#!lua flags=allow-oom
-- End a turn: history, lines for the chat, dead letter, inbox, ledger and lease change together.
-- KEYS   1 queue  2 leases  3 wake  4 session  5 inbox  6 ledger  7 history  8 log  9 live  10 dead letters
--        11 idle
-- ARGV   1 member  2 lease  3 n  4 history cap in bytes  5 keep the session ms  6 keep the log ms
--        7 record of a dead letter  8 its reason ('' = none)  9 live event  10 consolidate after ms without a message (0 = never)
--        11 number of history entries, the entries, then the lines
-- returns {1 committed | 0 this turn was committed before | -1 the lease is lost, entries in history, entries dropped}
local session, inbox, history = KEYS[4], KEYS[5], KEYS[7]
local member, n = ARGV[1], ARGV[3]
local told = redis.call('HMGET', session, 'done', 'taken', 'stop', 'kept')
if tonumber(told[1] or 0) >= tonumber(n) then return {0, 0, 0} end
if not holds(KEYS[2], member, ARGV[2]) then return {-1, 0, 0} end

local now, entries, length, dropped = now_ms(), tonumber(ARGV[11]), 0, 0
if entries > 0 then
  length, dropped = add_history(session, history, 12, 11 + entries, tonumber(ARGV[4]))
else
  length = redis.call('LLEN', history)
end
for i = 12 + entries, #ARGV do
  add_line(session, KEYS[8], KEYS[9], ARGV[i], ARGV[6])
end
local joined = taken_told(told[2], n)
if ARGV[8] ~= '' then
  redis.call('XADD', KEYS[10], 'MAXLEN', '~', 10000, '*', 'member', member, 'n', n, 'reason', ARGV[8], 'm', ARGV[7])
  for i, other in ipairs(joined) do
    -- A letter each, with a reference of its own, so that each can be put back.
    local entry = redis.call('XRANGE', inbox, other .. '-0', other .. '-0')[1]
    if entry then
      redis.call('XADD', KEYS[10], 'MAXLEN', '~', 10000, '*', 'member', member, 'n', other,
        'reason', ARGV[8] .. '.' .. i, 'm', field(entry, 'm'))
    end
  end
  redis.call('XTRIM', KEYS[10], 'MINID', integer(now - 30 * 86400000))
end

redis.call('XDEL', inbox, n .. '-0')
for _, other in ipairs(joined) do
  redis.call('XDEL', inbox, other .. '-0')
end
local kept = tonumber(told[4] or 0)
-- How long a session is kept need not be said anew at each turn: a fiftieth of it is no matter.
if now - kept > tonumber(ARGV[5]) / 50 or length == entries then
  kept = now
  redis.call('PEXPIRE', session, ARGV[5])
  redis.call('PEXPIRE', history, ARGV[5])
end
redis.call('HSET', session, 'done', joined[#joined] or n, 'kept', integer(kept))
redis.call('HDEL', KEYS[2], member)
if ARGV[10] ~= '0' then
  redis.call('ZADD', KEYS[11], now + tonumber(ARGV[10]), string.sub(member, 6))
end
local over = {'errors', 'crashes', 'spared', 'apart', 'tries', 'away', 'ledger', 'taken', 'place'}
if told[3] == n then
  over[#over + 1] = 'stop'
end
if redis.call('XLEN', inbox) == 0 then
  redis.call('DEL', inbox, KEYS[6])
  redis.call('HDEL', session, 'cut', 'person', unpack(over))
  leave_queue(KEYS[1], member)
else
  -- To the tail: one busy chat does not keep a slot.
  redis.call('DEL', KEYS[6])
  redis.call('HDEL', session, unpack(over))
  line_up_next(KEYS[1], KEYS[3], session, inbox, member, now)
end
redis.call('PUBLISH', KEYS[9], ARGV[9])
return {1, length, dropped}
