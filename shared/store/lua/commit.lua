#!lua flags=allow-oom
-- End turns, each for itself: of one, history, lines for the chat, dead letter, inbox, ledger and lease change together.
-- KEYS   1 queue  2 leases  3 wake  4 dead letters  5 idle
-- ARGV   1 number of turns, then of each
--        1 member  2 lease  3 n  4 keep the session ms  5 keep the log ms  6 record of a dead letter
--        7 its reason ('' = none)  8 live event  9 consolidate after ms without a message (0 = never)
--        10 history cap in bytes  11 number of history entries  12 of lines; behind all that of each the entries, the lines
-- returns of each {1 committed | 0 this turn was committed before | -1 the lease is lost, entries in history,
--         entries dropped} or {-2, error} when its keys are broken
local queue, leases = KEYS[1], KEYS[2]
local now = now_ms()
local text_of_now = integer(now)
-- What a turn leaves in its session only when something was the matter with it; the last two stay while others wait.
local ODD = {'taken', 'errors', 'crashes', 'spared', 'apart', 'away', 'ledger', 'cut', 'person'}
-- Written together at the end: who gives up a lease, who is due again when (score, member), who has nothing more to do.
local done, again, rests = {}, {}, {}

-- The dead letters of a turn: a letter each, with a reference of its own, so that each can be put back.
local function bury_messages(at, inbox, member, n, joined)
  local reason = ARGV[at + 7]
  redis.call('XADD', KEYS[4], 'MAXLEN', '~', 10000, '*', 'member', member, 'n', n, 'reason', reason, 'm', ARGV[at + 6])
  for i, other in ipairs(joined) do
    local entry = redis.call('XRANGE', inbox, other .. '-0', other .. '-0')[1]
    if entry then
      redis.call('XADD', KEYS[4], 'MAXLEN', '~', 10000, '*', 'member', member, 'n', other,
        'reason', reason .. '.' .. i, 'm', field(entry, 'm'))
    end
  end
  redis.call('XTRIM', KEYS[4], 'MINID', integer(now - 30 * 86400000))
end

-- Ends the turn whose arguments stand behind ARGV[at], its entries and lines from ARGV[first] on; `owner` has its lease.
local function commit(at, first, owner)
  local member, n, entries = ARGV[at + 1], ARGV[at + 3], tonumber(ARGV[at + 11])
  local name = string.sub(member, 6)
  local session, inbox, history = key('session', name), key('inbox', name), key('history', name)
  local log, live = key('outbox', name), key('live', name)
  local told = redis.call('HMGET', session, 'done', 'stop', 'kept', 'log', 'history', 'n', 'tries', unpack(ODD))
  local taken, has_ledger = told[8], told[14]
  if tonumber(told[1] or 0) >= tonumber(n) then return {0, 0, 0} end
  if owner ~= ARGV[at + 2] then return {-1, 0, 0} end

  local length, dropped, size = 0, 0, tonumber(told[5] or 0)
  if entries > 0 then
    length, dropped, size = add_history(session, history, first, first + entries - 1, tonumber(ARGV[at + 10]), size)
  else
    length = redis.call('LLEN', history)
  end
  -- How long all this is kept need not be said anew at each turn: a fiftieth of it is no matter.
  local keep_ms, keep_log_ms, kept = ARGV[at + 4], ARGV[at + 5], told[3] or '0'
  local lately = now - tonumber(kept) <= math.min(tonumber(keep_ms), tonumber(keep_log_ms)) / 50 and length > entries
  local seq = tonumber(told[4] or 0)
  for i = first + entries, first + entries + tonumber(ARGV[at + 12]) - 1 do
    seq = add_line(session, log, live, ARGV[i], keep_log_ms, seq + 1, lately)
  end
  local joined = taken_told(taken, n)
  if ARGV[at + 7] ~= '' then
    bury_messages(at, inbox, member, n, joined)
  end
  if not lately then
    kept = text_of_now
    redis.call('PEXPIRE', session, keep_ms)
    redis.call('PEXPIRE', history, keep_ms)
  end
  local last = joined[#joined] or n
  redis.call('HSET', session, 'done', last, 'kept', kept, 'log', seq, 'history', size, 'tries', 0)
  done[#done + 1] = member
  if ARGV[at + 9] ~= '0' then
    redis.call('ZADD', KEYS[5], now + tonumber(ARGV[at + 9]), name)
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
  if not head then
    redis.call('DEL', inbox, key('ledger', name))
    rests[#rests + 1] = member
  else
    -- To the tail: one busy chat does not keep a slot.
    if has_ledger then
      redis.call('DEL', key('ledger', name))
    end
    local person = field(head, 'p')
    if answered and told[7] == '1' and person ~= 'background' and person == field(answered, 'p') then
      -- It stays in its queue, and whose turn it is was said when it came; one that was given back is marked, too.
      again[#again + 1] = math.max(now, tonumber(field(head, 'd') or 0))
      again[#again + 1] = member
    else
      line_up_next(queue, KEYS[3], session, member, head, now)
    end
  end
  redis.call('PUBLISH', live, ARGV[at + 8])
  return {1, length, dropped}
end

local members, answers = {}, {}
for i = 1, tonumber(ARGV[1]) do
  members[i] = ARGV[12 * i - 10]
end
local first = 2 + 12 * #members
for i, owner in ipairs(redis.call('HMGET', leases, unpack(members))) do
  local at = 12 * i - 11
  local ok, answer = pcall(commit, at, first, owner)
  -- One session with a broken key must not stand in the way of the others.
  answers[i] = ok and answer or {-2, type(answer) == 'table' and answer.err or tostring(answer)}
  first = first + tonumber(ARGV[at + 11]) + tonumber(ARGV[at + 12])
end
if #done > 0 then
  redis.call('HDEL', leases, unpack(done))
end
if #rests > 0 then
  redis.call('ZREM', queue, unpack(rests))
  redis.call('HDEL', SHARES, unpack(rests))
end
if #again > 0 then
  redis.call('ZADD', queue, unpack(again))
  for i = 1, #again, 2 do
    if again[i] <= now then
      wake(KEYS[3])
      break
    end
  end
end
return answers
