#!lua flags=allow-oom
-- Commits turns. For each one history, lines for the chat, dead letter, inbox, ledger and lease
-- change together; each turn of a batch succeeds or fails on its own.
-- KEYS   1 queue  2 leases  3 wake  4 dead letters  5 idle
-- ARGV   1 number of turns
--        2 keep the session ms  3 keep the log ms  4 consolidate after ms without a message (0 = never)
--        5 6 7 the same for ephemeral sessions  8 history cap in bytes
--        then for each turn:
--        1 member  2 lease  3 n  4 live event  5 marks: 'p' its session is ephemeral, 'd' a dead letter
--        6 when the next message is due, if it can simply follow, as acquire.lua answered
--        7 number of history entries  8 number of lines
--        then for each turn its entries, its lines, and for a dead letter reason and record
-- returns of each {1 committed | 0 this turn was committed before | -1 the lease is lost, entries in history,
--         entries dropped} or {-2, error} when its keys are broken
local queue, leases = KEYS[1], KEYS[2]
local now = now_ms()
local text_of_now = integer(now)
-- Fields that a session has only while a turn needs them, in the order in which they are read
-- below, and fields that only failed attempts leave.
local ONE_TURN, EARLIER = {'taken', 'ledger', 'apart', 'gap'}, {'errors', 'crashes', 'spared', 'away'}
-- Collected for all turns and written once at the end: members whose lease ends, scores and members
-- that are due again, members with nothing left to do.
local ended, due_again, idle_members = {}, {}, {}

-- Writes the dead letters of a turn: one for each of its messages, with a reference of its own, so
-- that each can be replayed alone.
local function dead_letter_messages(reason, record, inbox, member, n, joined)
  redis.call('XADD', KEYS[4], 'MAXLEN', '~', 10000, '*', 'member', member, 'n', n, 'reason', reason, 'm', record)
  -- A joined message has no record among the arguments; it is still in the inbox.
  for i, other in ipairs(joined) do
    local entry = (guarded('XRANGE', inbox, other .. '-0', other .. '-0') or {})[1]
    if entry then
      redis.call('XADD', KEYS[4], 'MAXLEN', '~', 10000, '*', 'member', member, 'n', other,
        'reason', reason .. '.' .. i, 'm', field(entry, 'm'))
    end
  end
  -- Kept for 30 days; the id of an entry is its time.
  redis.call('XTRIM', KEYS[4], 'MINID', integer(now - 30 * 86400000))
end

-- Removes fields of a session that end with its turn, or with the last waiting message.
local function clear_turn_fields(session, fields, n, others_wait, first_try)
  local cleared = {}
  -- A stop for another turn, one that comes later, must stay.
  if fields[2] == n then cleared[#cleared + 1] = 'stop' end
  -- Fields 10 to 13 of the HMGET below are ONE_TURN, in this order.
  for i = 10, 13 do
    if fields[i] then cleared[#cleared + 1] = ONE_TURN[i - 9] end
  end
  -- A first attempt left none of these: no call for the common case.
  if not first_try then
    for _, name in ipairs(EARLIER) do cleared[#cleared + 1] = name end
  end
  -- `cut` and `person` speak about waiting messages.
  if not others_wait then
    if fields[8] then cleared[#cleared + 1] = 'cut' end
    if fields[9] then cleared[#cleared + 1] = 'person' end
  end
  if #cleared > 0 then
    redis.call('HDEL', session, unpack(cleared))
  end
end

-- Ends one turn: its arguments are behind ARGV[at], what it brings begins at ARGV[first]; `owner`
-- is the lease that the server has for its member.
local function commit(at, first, owner)
  local member, n, marks, entries, lines =
    ARGV[at + 1], ARGV[at + 3], ARGV[at + 5], tonumber(ARGV[at + 7]), tonumber(ARGV[at + 8])
  -- Ephemeral sessions ('p') use the second set of three times.
  local offset = marks ~= '' and string.find(marks, 'p', 1, true) and 3 or 0
  local keep_ms, keep_log_ms, idle_ms = ARGV[2 + offset], ARGV[3 + offset], ARGV[4 + offset]
  -- A member is 'turn:<session>'.
  local name = string.sub(member, 6)
  local session, inbox, history = key('session', name), key('inbox', name), key('history', name)
  local log, live = key('outbox', name), key('live', name)
  -- One read for everything that a session knows about the turn.
  local fields = redis.call('HMGET', session, 'done', 'stop', 'kept', 'log', 'history', 'n', 'tries', 'cut', 'person',
    'taken', 'ledger', 'apart', 'gap')
  local first_try, joined_field, has_ledger, gap = fields[7] == '1', fields[10], fields[11], fields[13]
  if owner ~= ARGV[at + 2] then
    -- Committed before: the reply to that call was lost, and the lease ended with it. Otherwise
    -- another worker claimed the turn meanwhile: nothing of this one may be written.
    return {(parse_count(fields[1]) or 0) >= tonumber(n) and 0 or -1, 0, 0}
  end
  -- Nothing may fail between two writes, or the turn would be half committed. The conversation needs
  -- no check, for it is written first.
  check_chat('stream', log)
  if string.find(marks, 'd', 1, true) then
    check_fleet('stream', KEYS[4])
  end
  local length, dropped, size = 0, 0, parse_count(fields[5]) or 0
  -- Entries that come over the cap push out the oldest ones.
  if entries > 0 then
    length, dropped, size = add_history(session, history, first, first + entries - 1, tonumber(ARGV[8]), size)
  else
    length = redis.call('LLEN', history)
  end
  -- How long all this is kept need not be said anew at each turn: a fiftieth of it is no matter.
  -- Expiries are renewed at most every fiftieth of their length: three calls less for most turns.
  -- A history that has just been created has no expiry yet.
  local ttl_fresh = length > entries
    and now - (parse_count(fields[3]) or 0) <= math.min(tonumber(keep_ms), tonumber(keep_log_ms)) / 50
  -- Lines are numbered from the session's counter, which is written once below.
  local seq = parse_count(fields[4]) or 0
  local after_lines = first + entries + lines
  for i = first + entries, after_lines - 1 do
    seq = add_line(session, log, live, ARGV[i], keep_log_ms, seq, ttl_fresh)
  end
  -- The messages that joined this turn end with it.
  local joined = parse_joined(joined_field, n)
  -- Flag 'd': the turn failed for good. Reason and record come after its lines.
  if marks ~= '' and string.find(marks, 'd', 1, true) then
    dead_letter_messages(ARGV[after_lines], ARGV[after_lines + 1], inbox, member, n, joined)
  end
  -- The number up to which every message of the session has been answered.
  local last = joined[#joined] or n
  if ttl_fresh then
    -- done: the last answered message; log: the last line; history: bytes; tries 0: the next
    -- attempt is a first one.
    redis.call('HSET', session, 'done', last, 'log', seq, 'history', size, 'tries', 0)
  else
    redis.call('HSET', session, 'done', last, 'log', seq, 'history', size, 'tries', 0, 'kept', text_of_now)
    redis.call('PEXPIRE', session, keep_ms)
    redis.call('PEXPIRE', history, keep_ms)
  end
  -- From here on the turn counts as committed.
  ended[#ended + 1] = member
  -- When the conversation is idle for this long, it is consolidated into memory.
  -- Every commit moves the time: only a conversation that rests is consolidated.
  if idle_ms ~= '0' then
    guarded('ZADD', KEYS[5], now + tonumber(idle_ms), name)
  end
  -- Who comes next is often known since the turn was claimed: then its place in the queue and its
  -- fair key stay as they are, and the inbox need not be read.
  local others_wait, head, follows = fields[6] ~= last, nil, false
  -- The counter of the session is ahead of the last answered message.
  if others_wait then
    -- Where the inbox is broken nothing waits any more; it is deleted below.
    guarded('XDEL', inbox, n .. '-0')
    for _, other in ipairs(joined) do
      guarded('XDEL', inbox, other .. '-0')
    end
    -- `gap`: a message was withdrawn meanwhile, so what acquire.lua saw may be gone.
    -- One whose window is still open goes by its own fields: the clock may have fallen back.
    local next_due = tonumber(ARGV[at + 6])
    follows = first_try and next_due and next_due <= now and not gap and #joined == 0
    if not follows then
      head = (guarded('XRANGE', inbox, '-', '+', 'COUNT', 1) or {})[1]
      others_wait = head
    end
  end
  -- Before the session is queued again: `requeue` must not see a stale field.
  clear_turn_fields(session, fields, n, others_wait, first_try)
  -- To the tail of the queue, as below.
  if follows then
    due_again[#due_again + 1] = now
    due_again[#due_again + 1] = member
  elseif head then
    -- To the tail of the queue: one busy chat does not keep its slot.
    requeue_next(queue, KEYS[3], session, member, head, now)
  else
    -- The session rests. Both keys are deleted at once; an empty stream would stay for ever.
    redis.call('DEL', inbox, key('ledger', name))
    idle_members[#idle_members + 1] = member
  end
  -- The ledger belongs to the turn that ended, not to the next one.
  if others_wait and has_ledger then
    redis.call('DEL', key('ledger', name))
  end
  -- Followers learn that the turn is over.
  redis.call('PUBLISH', live, ARGV[at + 4])
  return {1, length, dropped}
end
--
-- The work begins here: 8 arguments for all turns, then 8 for each.
local OF_ALL, OF_EACH = 8, 8
local members, answers = {}, {}
for i = 1, tonumber(ARGV[1]) do
  members[i] = ARGV[OF_ALL + OF_EACH * (i - 1) + 1]
end
local first = OF_ALL + OF_EACH * #members + 1
-- The leases of all turns in one call.
for i, owner in ipairs(redis.call('HMGET', leases, unpack(members))) do
  local at = OF_ALL + OF_EACH * (i - 1)
  local ok, answer = pcall(commit, at, first, owner)
  -- A broken key of one session must not stop the commits of the others.
  answers[i] = ok and answer or {-2, type(answer) == 'table' and answer.err or tostring(answer)}
  -- Entries and lines of the next turn follow, and reason and record if this one was a dead letter.
  first = first + tonumber(ARGV[at + 7]) + tonumber(ARGV[at + 8])
  if string.find(ARGV[at + 5], 'd', 1, true) then
    first = first + 2
  end
end
if #ended > 0 then
  redis.call('HDEL', leases, unpack(ended))
end
-- Nothing waits in these sessions any more.
if #idle_members > 0 then
  guarded('ZREM', queue, unpack(idle_members))
  guarded('HDEL', FAIR_KEYS, unpack(idle_members))
end
if #due_again > 0 then
  guarded('ZADD', queue, unpack(due_again))
  -- One token is enough: the worker that takes it wakes the next one.
  for i = 1, #due_again, 2 do
    if due_again[i] <= now then
      wake(KEYS[3])
      break
    end
  end
end
return answers
