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
local told = redis.call('HMGET', session, 'done', 'taken', 'stop', 'kept', 'log', 'history', 'n')
if tonumber(told[1] or 0) >= tonumber(n) then return {0, 0, 0} end
if not holds(KEYS[2], member, ARGV[2]) then return {-1, 0, 0} end

local now, entries = now_ms(), tonumber(ARGV[11])
local length, dropped, size = 0, 0, tonumber(told[6] or 0)
if entries > 0 then
  length, dropped, size = add_history(session, history, 12, 11 + entries, tonumber(ARGV[4]), size)
else
  length = redis.call('LLEN', history)
end
-- How long all this is kept need not be said anew at each turn: a fiftieth of it is no matter.
local kept = tonumber(told[4] or 0)
local lately = now - kept <= math.min(tonumber(ARGV[5]), tonumber(ARGV[6])) / 50 and length > entries
local seq = tonumber(told[5] or 0)
for i = 12 + entries, #ARGV do
  seq = add_line(session, KEYS[8], KEYS[9], ARGV[i], ARGV[6], seq + 1, lately)
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

if not lately then
  kept = now
  redis.call('PEXPIRE', session, ARGV[5])
  redis.call('PEXPIRE', history, ARGV[5])
end
local last = joined[#joined] or n
redis.call('HSET', session, 'done', last, 'kept', integer(kept), 'log', seq, 'history', integer(size))
redis.call('HDEL', KEYS[2], member)
if ARGV[10] ~= '0' then
  redis.call('ZADD', KEYS[11], now + tonumber(ARGV[10]), string.sub(member, 6))
end
local over = {'errors', 'crashes', 'spared', 'apart', 'tries', 'away', 'ledger', 'taken', 'place'}
if told[3] == n then
  over[#over + 1] = 'stop'
end
local empty = told[7] == last
if not empty then
  redis.call('XDEL', inbox, n .. '-0')
  for _, other in ipairs(joined) do
    redis.call('XDEL', inbox, other .. '-0')
  end
  empty = redis.call('XLEN', inbox) == 0
end
if empty then
  redis.call('DEL', inbox, KEYS[6])
  redis.call('HDEL', session, 'cut', 'person', unpack(over))
  redis.call('ZREM', KEYS[1], member)
  share(member, nil)
else
  -- To the tail: one busy chat does not keep a slot.
  redis.call('DEL', KEYS[6])
  redis.call('HDEL', session, unpack(over))
  line_up_next(KEYS[1], KEYS[3], session, inbox, member, now)
end
redis.call('PUBLISH', KEYS[9], ARGV[9])
return {1, length, dropped}
