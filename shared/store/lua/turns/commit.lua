#!lua flags=allow-oom
-- durable
-- Commits turns. For each one history, lines for the chat, dead letter, inbox, ledger and lease
-- change together; each turn of a batch succeeds or fails on its own.
-- keep_session_ms, keep_log_ms, idle_ms  how long both are kept, and after which time without a
--                                        message a conversation is consolidated (0 = never);
--                                        passing_...  the same for ephemeral sessions
-- history_bytes  cap of a history
-- fences         MessagePack list of the turns, in their order: member, lease
-- ends           MessagePack list of the same turns: see `commit`
-- returns of each {'committed' | 'known' = this turn was committed before | 'lost', entries in
--         history, entries dropped, 1 = the chat's title is its first words (see list_chat)} or
--         {'broken', error} for its keys
local queue, leases, wake_list, DEAD, IDLE, MODEL_WAITS = unpack(KEYS)
local keep_session_ms, keep_log_ms, idle_ms, passing_session_ms, passing_log_ms, passing_idle_ms,
  history_bytes, fences, ends = unpack(ARGV)
history_bytes = tonumber(history_bytes)
local now = now_ms()
local text_of_now = integer(now)
-- Fields that a session has only while a turn needs them, in the order in which they are read
-- below, and fields that only failed attempts leave.
local ONE_TURN, EARLIER = {'taken', 'ledger', 'apart', 'gap'},
  {'errors', 'crashes', 'spared', 'away', 'alone'}
-- Collected for all turns and written once at the end: members whose lease ends, scores and members
-- that are due again, members with nothing left to do.
local ended, due_again, idle_members = {}, {}, {}

-- Writes the dead letters of a turn: one for each of its messages, with a reference of its own, so
-- that each can be replayed alone.
local function dead_letter_messages(reason, record, words, inbox, member, n, joined)
  redis.call('XADD', DEAD, 'MAXLEN', '~', 10000, '*', 'member', member, 'n', n, 'reason', reason, 'm', record,
    'why', words)
  -- A joined message has no record among the arguments; it is still in the inbox.
  for i, other in ipairs(joined) do
    local entry = (guarded('XRANGE', inbox, other .. '-0', other .. '-0') or {})[1]
    if entry then
      redis.call('XADD', DEAD, 'MAXLEN', '~', 10000, '*', 'member', member, 'n', other,
        'reason', reason .. '.' .. i, 'm', field(entry, 'm'), 'why', words)
    end
  end
  -- Kept for 30 days; the id of an entry is its time.
  redis.call('XTRIM', DEAD, 'MINID', integer(now - 30 * 86400000))
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

-- Ends one turn; `owner` is the lease that the server has for its member. Of `turn`: `marks` 'p'
-- its session is ephemeral, 's' it is one of stored responses, which no memory is made of; `next_due` when the next message is due, if it can simply follow, as
-- acquire.lua answered; `sources` what it adds to the mark of the chat; `dead` reason and record of
-- a dead letter, if it failed for good, and what the model's provider said.
local function commit(member, lease, owner, turn)
  local n, event, marks, next_due, entries, lines, sources, dead = unpack(turn)
  local keep_ms, log_ms, rest_ms = keep_session_ms, keep_log_ms, idle_ms
  if marks == 'p' then
    keep_ms, log_ms, rest_ms = passing_session_ms, passing_log_ms, passing_idle_ms
  elseif marks == 's' then
    rest_ms = passing_idle_ms
  end
  -- A member is 'turn:<session>'.
  local name = string.sub(member, 6)
  local session, inbox, history = key('session', name), key('inbox', name), key('history', name)
  local log, live = key('outbox', name), key('live', name)
  -- One read for everything that a session knows about the turn.
  local fields = redis.call('HMGET', session, 'done', 'stop', 'kept', 'log', 'history', 'n', 'tries', 'cut', 'person',
    'taken', 'ledger', 'apart', 'gap', 'titled')
  local first_try, joined_field, has_ledger, gap = fields[7] == '1', fields[10], fields[11], fields[13]
  if owner ~= lease then
    -- Committed before: the reply to that call was lost, and the lease ended with it. Otherwise
    -- another worker claimed the turn meanwhile: nothing of this one may be written.
    return {(parse_count(fields[1]) or 0) >= tonumber(n) and 'known' or 'lost', 0, 0, 0}
  end
  -- Nothing may fail between two writes, or the turn would be half committed. The conversation needs
  -- no check, for it is written first.
  check_chat('stream', log)
  if dead then
    check_fleet('stream', DEAD)
  end
  local length, dropped, size = 0, 0, parse_count(fields[5]) or 0
  -- Entries that come over the cap push the oldest ones into the archive.
  if #entries > 0 then
    length, dropped, size = add_history(session, history, entries, history_bytes, size)
  else
    length = redis.call('LLEN', history)
  end
  -- How long all this is kept need not be said anew at each turn: a fiftieth of it is no matter.
  -- Expiries are renewed at most every fiftieth of their length: three calls less for most turns.
  -- A history that has just been created has no expiry yet.
  local ttl_fresh = length > #entries
    and now - (parse_count(fields[3]) or 0) <= math.min(tonumber(keep_ms), tonumber(log_ms)) / 50
  -- Lines are numbered from the session's counter, which is written once below.
  local seq = parse_count(fields[4]) or 0
  for _, line in ipairs(lines) do
    seq = add_line(session, log, live, line, log_ms, seq, ttl_fresh, false)
  end
  -- The messages that joined this turn end with it.
  local joined = parse_joined(joined_field, n)
  if dead then
    dead_letter_messages(dead[1], dead[2], dead[3], inbox, member, n, joined)
  end
  -- The number up to which every message of the session has been answered.
  local last = joined[#joined] or n
  if ttl_fresh then
    -- done: the last answered message; log: the last line; history: bytes; tries 0: the next
    -- attempt is a first one; updated: for people who list sessions.
    redis.call('HSET', session, 'done', last, 'log', seq, 'history', size, 'tries', 0, 'updated', text_of_now)
  else
    redis.call('HSET', session, 'done', last, 'log', seq, 'history', size, 'tries', 0, 'updated', text_of_now,
      'kept', text_of_now)
    redis.call('PEXPIRE', session, keep_ms)
    redis.call('PEXPIRE', history, keep_ms)
  end
  -- What the turn read stays in the conversation, and so does the mark of it.
  add_sources(session, 'sources', sources)
  -- From here on the turn counts as committed.
  ended[#ended + 1] = member
  -- When the conversation is idle for this long, it is consolidated into memory.
  -- Every commit moves the time: only a conversation that rests is consolidated.
  if rest_ms ~= '0' then
    guarded('ZADD', IDLE, now + tonumber(rest_ms), name)
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
    next_due = tonumber(next_due)
    follows = first_try and next_due and next_due <= now and not gap and #joined == 0
    if not follows then
      head = (guarded('XRANGE', inbox, '-', '+', 'COUNT', 1) or {})[1]
      others_wait = head
    end
  end
  -- Before the session is queued again: `requeue` must not see a stale field.
  clear_turn_fields(session, fields, n, others_wait, first_try)
  -- It waits for no model any more.
  if not first_try then
    guarded('ZREM', MODEL_WAITS, member)
  end
  -- To the tail of the queue, as below.
  if follows then
    due_again[#due_again + 1] = now
    due_again[#due_again + 1] = member
  elseif head then
    -- To the tail of the queue: one busy chat does not keep its slot.
    requeue_next(queue, wake_list, session, member, head, now)
  else
    -- The session rests. All three keys are deleted at once; an empty stream would stay for ever.
    redis.call('DEL', inbox, key('ledger', name), live)
    idle_members[#idle_members + 1] = member
  end
  -- The ledger and the text on the screens belong to the turn that ended, not to the next one.
  if others_wait then
    redis.call('DEL', live, has_ledger and key('ledger', name) or live)
  end
  -- Followers learn that the turn is over.
  redis.call('PUBLISH', live, event)
  add_notice(name, n, seq, event)
  -- One fact for all of it, also where the turn ended without a line.
  add_fact(name, 'seq', integer(seq), 'at', text_of_now, 'running', others_wait and 1 or 0, 'asks', 0)
  return {'committed', length, dropped, fields[14] == 'words' and 1 or 0}
end
fences, ends = cmsgpack.unpack(fences), cmsgpack.unpack(ends)
local members, answers = {}, {}
for i = 1, #fences, 2 do
  members[#members + 1] = fences[i]
end
-- The leases of all turns in one call.
for i, owner in ipairs(redis.call('HMGET', leases, unpack(members))) do
  local ok, answer = pcall(commit, members[i], fences[2 * i], owner, ends[i])
  -- A broken key of one session must not stop the commits of the others.
  answers[i] = ok and answer or {'broken', type(answer) == 'table' and answer.err or tostring(answer)}
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
      wake(wake_list)
      break
    end
  end
end
return answers
