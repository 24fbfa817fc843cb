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
-- What a turn leaves in its session only when something was the matter with it; the last two stay while others wait.
local ODD = {'taken', 'errors', 'crashes', 'spared', 'apart', 'away', 'ledger', 'cut', 'person'}
local told = redis.call('HMGET', session, 'done', 'stop', 'kept', 'log', 'history', 'n', 'tries', unpack(ODD))
local taken, has_ledger = told[8], told[14]
if tonumber(told[1] or 0) >= tonumber(n) then return {0, 0, 0} end
if not holds(KEYS[2], member, ARGV[2]) then return {-1, 0, 0} end

local now, entries = now_ms(), tonumber(ARGV[11])
local length, dropped, size = 0, 0, tonumber(told[5] or 0)
if entries > 0 then
  length, dropped, size = add_history(session, history, 12, 11 + entries, tonumber(ARGV[4]), size)
else
  length = redis.call('LLEN', history)
end
-- How long all this is kept need not be said anew at each turn: a fiftieth of it is no matter.
local kept = told[3] or '0'
local lately = now - tonumber(kept) <= math.min(tonumber(ARGV[5]), tonumber(ARGV[6])) / 50 and length > entries
local seq = tonumber(told[4] or 0)
for i = 12 + entries, #ARGV do
  seq = add_line(session, KEYS[8], KEYS[9], ARGV[i], ARGV[6], seq + 1, lately)
end
local joined = taken_told(taken, n)
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
  kept = integer(now)
  redis.call('PEXPIRE', session, ARGV[5])
  redis.call('PEXPIRE', history, ARGV[5])
end
local last = joined[#joined] or n
redis.call('HSET', session, 'done', last, 'kept', kept, 'log', seq, 'history', size, 'tries', 0)
redis.call('HDEL', KEYS[2], member)
if ARGV[10] ~= '0' then
  redis.call('ZADD', KEYS[11], now + tonumber(ARGV[10]), string.sub(member, 6))
end
local answered, head
if told[6] ~= last then
  answered, head = unpack(redis.call('XRANGE', inbox, '-', '+', 'COUNT', 2))
  redis.call('XDEL', inbox, n .. '-0')
  if #joined > 0 then
    for _, other in ipairs(joined) do
      redis.call('XDEL', inbox, other .. '-0')
    end
    answered, head = nil, redis.call('XRANGE', inbox, '-', '+', 'COUNT', 1)[1]
  end
end
local over = head and {} or {'tries', 'place'}
if told[2] == n then
  over[#over + 1] = 'stop'
end
for i = 1, head and #ODD - 2 or #ODD do
  if told[7 + i] then
    over[#over + 1] = ODD[i]
  end
end
if #over > 0 then
  redis.call('HDEL', session, unpack(over))
end
if head then
  -- To the tail: one busy chat does not keep a slot.
  if has_ledger then
    redis.call('DEL', KEYS[6])
  end
  -- Whose turn it is was said when it came; one that was given back is marked, too.
  local same = answered and told[7] == '1' and field(answered, 'p') == field(head, 'p')
  line_up_next(KEYS[1], KEYS[3], session, member, head, now, same)
else
  redis.call('DEL', inbox, KEYS[6])
  redis.call('ZREM', KEYS[1], member)
  share(member, nil)
end
redis.call('PUBLISH', KEYS[9], ARGV[9])
return {1, length, dropped}
