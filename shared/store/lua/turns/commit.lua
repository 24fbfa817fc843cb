#!lua flags=allow-oom
-- End turns, each for itself: of one, history, lines for the chat, dead letter, inbox, ledger and lease change together.
-- KEYS   1 queue  2 leases  3 wake  4 dead letters  5 idle
-- ARGV   1 number of turns; for sessions that last, and for those that pass: 2 5 keep the session ms  3 6 keep the log ms
--        4 7 consolidate after ms without a message (0 = never); 8 history cap in bytes; then of each turn
--        1 member  2 lease  3 n  4 live event  5 marks: 'p' its session passes, 'd' a dead letter
--        6 when the one behind it is due, if it can simply follow, as acquire.lua told
--        7 number of history entries  8 of lines; behind all that of each the entries, the lines, and of a dead letter
--        reason and record
-- returns of each {1 committed | 0 this turn was committed before | -1 the lease is lost, entries in history,
--         entries dropped} or {-2, error} when its keys are broken
local queue, leases = KEYS[1], KEYS[2]
local now = now_ms()
local text_of_now = integer(now)
-- What stands in a session only when something was the matter with a turn, or with earlier attempts at it.
local ONE_TURN, EARLIER = {'taken', 'ledger', 'apart', 'gap'}, {'errors', 'crashes', 'spared', 'away'}
-- Written together at the end: who gives up a lease, who is due again when (score, member), who has nothing more to do.
local done, again, rests = {}, {}, {}

-- The dead letters of a turn: a letter each, with a reference of its own, so that each can be put back.
local function bury_messages(reason, record, inbox, member, n, joined)
  redis.call('XADD', KEYS[4], 'MAXLEN', '~', 10000, '*', 'member', member, 'n', n, 'reason', reason, 'm', record)
  for i, other in ipairs(joined) do
    local entry = redis.call('XRANGE', inbox, other .. '-0', other .. '-0')[1]
    if entry then
      redis.call('XADD', KEYS[4], 'MAXLEN', '~', 10000, '*', 'member', member, 'n', other,
        'reason', reason .. '.' .. i, 'm', field(entry, 'm'))
    end
  end
  redis.call('XTRIM', KEYS[4], 'MINID', integer(now - 30 * 86400000))
end

-- Takes out of a session what stays there until its turn ends, or until nobody `waits` behind it.
local function forget(session, told, n, waits, first_try)
  local over = {}
  if told[2] == n then over[#over + 1] = 'stop' end
  for i = 10, 13 do
    if told[i] then over[#over + 1] = ONE_TURN[i - 9] end
  end
  if not first_try then
    for _, name in ipairs(EARLIER) do over[#over + 1] = name end
  end
  if not waits then
    if told[8] then over[#over + 1] = 'cut' end
    if told[9] then over[#over + 1] = 'person' end
  end
  if #over > 0 then
    redis.call('HDEL', session, unpack(over))
  end
end

-- Ends the turn whose arguments stand behind ARGV[at], what it brings from ARGV[first] on; `owner` has its lease.
local function commit(at, first, owner)
  local member, n, marks, entries, lines =
    ARGV[at + 1], ARGV[at + 3], ARGV[at + 5], tonumber(ARGV[at + 7]), tonumber(ARGV[at + 8])
  local passes = marks ~= '' and string.find(marks, 'p', 1, true) and 3 or 0
  local keep_ms, keep_log_ms, idle_ms = ARGV[2 + passes], ARGV[3 + passes], ARGV[4 + passes]
  local name = string.sub(member, 6)
  local session, inbox, history = key('session', name), key('inbox', name), key('history', name)
  local log, live = key('outbox', name), key('live', name)
  local told = redis.call('HMGET', session, 'done', 'stop', 'kept', 'log', 'history', 'n', 'tries', 'cut', 'person',
    'taken', 'ledger', 'apart', 'gap')
  local first_try, taken, has_ledger, gap = told[7] == '1', told[10], told[11], told[13]
  if tonumber(told[1] or 0) >= tonumber(n) then return {0, 0, 0} end
  if owner ~= ARGV[at + 2] then return {-1, 0, 0} end

  local length, dropped, size = 0, 0, tonumber(told[5] or 0)
  if entries > 0 then
    length, dropped, size = add_history(session, history, first, first + entries - 1, tonumber(ARGV[8]), size)
  else
    length = redis.call('LLEN', history)
  end
  -- How long all this is kept need not be said anew at each turn: a fiftieth of it is no matter.
  local lately = now - tonumber(told[3] or 0) <= math.min(tonumber(keep_ms), tonumber(keep_log_ms)) / 50 and length > entries
  local seq = tonumber(told[4] or 0)
  local behind = first + entries + lines
  for i = first + entries, behind - 1 do
    seq = add_line(session, log, live, ARGV[i], keep_log_ms, seq + 1, lately)
  end
  local joined = taken_told(taken, n)
  if marks ~= '' and string.find(marks, 'd', 1, true) then
    bury_messages(ARGV[behind], ARGV[behind + 1], inbox, member, n, joined)
  end
  local last = joined[#joined] or n
  if lately then
    redis.call('HSET', session, 'done', last, 'log', seq, 'history', size, 'tries', 0)
  else
    redis.call('HSET', session, 'done', last, 'log', seq, 'history', size, 'tries', 0, 'kept', text_of_now)
    redis.call('PEXPIRE', session, keep_ms)
    redis.call('PEXPIRE', history, keep_ms)
  end
  done[#done + 1] = member
  if idle_ms ~= '0' then
    redis.call('ZADD', KEYS[5], now + tonumber(idle_ms), name)
  end

  -- Who comes next: often known since this turn began. Then its place, and whose turn it is, stay as they are.
  local waits, head, follows = told[6] ~= last, nil, false
  if waits then
    redis.call('XDEL', inbox, n .. '-0')
    for _, other in ipairs(joined) do
      redis.call('XDEL', inbox, other .. '-0')
    end
    follows = first_try and ARGV[at + 6] ~= '' and not gap and #joined == 0
    if not follows then
      head = redis.call('XRANGE', inbox, '-', '+', 'COUNT', 1)[1]
      waits = head
    end
  end
  forget(session, told, n, waits, first_try)
  if follows then
    again[#again + 1] = math.max(now, tonumber(ARGV[at + 6]))
    again[#again + 1] = member
  elseif head then
    -- To the tail: one busy chat does not keep a slot.
    line_up_next(queue, KEYS[3], session, member, head, now)
  else
    redis.call('DEL', inbox, key('ledger', name))
    rests[#rests + 1] = member
  end
  if waits and has_ledger then
    redis.call('DEL', key('ledger', name))
  end
  redis.call('PUBLISH', live, ARGV[at + 4])
  return {1, length, dropped}
end

local OF_ALL, OF_EACH = 8, 8
local members, answers = {}, {}
for i = 1, tonumber(ARGV[1]) do
  members[i] = ARGV[OF_ALL + OF_EACH * (i - 1) + 1]
end
local first = OF_ALL + OF_EACH * #members + 1
for i, owner in ipairs(redis.call('HMGET', leases, unpack(members))) do
  local at = OF_ALL + OF_EACH * (i - 1)
  local ok, answer = pcall(commit, at, first, owner)
  -- One session with a broken key must not stand in the way of the others.
  answers[i] = ok and answer or {-2, type(answer) == 'table' and answer.err or tostring(answer)}
  first = first + tonumber(ARGV[at + 7]) + tonumber(ARGV[at + 8])
  if string.find(ARGV[at + 5], 'd', 1, true) then
    first = first + 2
  end
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
