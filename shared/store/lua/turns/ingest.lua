#!lua
-- Stores a message in its session's inbox, once, and makes the session due.
-- KEYS   1 inbox  2 session  3 queue  4 wake  5 log  6 live  7 chats ('' = the channel keeps no list)
--        8 the sender's brake  9 leases
-- ARGV   1 record  2 schema version  3 dedupe id  4 prefix of the seen hashes  5 days an id is remembered
--        6 member  7 inbox cap  8 cap of waiting sessions  9 keep the session ms  10 keep the log ms
--        11 line for the chat's log ('' = none)  12 chat id  13 title
--        14 memory scope ('' = the chat's own, '=' = as it is)
--        15 '1' = only count it: it is a command, which is answered elsewhere
--        16 messages of this sender a minute (0 = no limit)
--        17 messages of bots without a person between them that pause the chat for bots (0 = no limit)  18 within ms
--        19 who wrote it: 'bot', 'person', or '' = Shoal itself  20 SHA-1 of the text ('' = too short to be an echo)
--        21 what is done while a turn runs, unless the session has a choice of its own: 'queue', 'steer', 'merge',
--        'interrupt', 'reject'; '' = queue, whatever was chosen  22 '1' = it joins others of its kind
--        23 window of 'merge' ms  24 control channel  25 line of 'reject', with {ahead} in its text
--        26 fair key of the turn: a person's, 'background', or '' = its chat's own
-- returns {1 accepted | 0 known | 2 rejected, and told so | -1 inbox full | -2 too many sessions, n, ahead, seq}
--         and {-3 too many of this sender | -4 too many of bots, ms to wait, 0, 0}
-- Expiring keys follow the session: they are renewed with every message.
local inbox, session, queue = KEYS[1], KEYS[2], KEYS[3]
-- `id` is the dedupe id `<chat>/<message>`; `prefix` names the hashes of seen ids, one for each
-- day.
local id, prefix, days, member = ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6]
-- KEYS[5] is 'shoal:outbox:<session>'.
local name = string.sub(KEYS[5], 14)
local channel = delivery_channel(name)
local now = now_ms()
-- How many turns come before message n: for the answer, and for a repeated delivery of it.
local function ahead_of(n)
  local oldest = redis.call('XRANGE', inbox, '-', '+', 'COUNT', 1)[1]
  local head = oldest and string.match(oldest[1], '%d+')
  -- Answered already, or it is the turn that runs.
  if not head or tonumber(n) <= tonumber(head) then return 0 end
  -- Numbers have gaps only where a message was withdrawn. Without a gap no record need be read.
  local ahead = tonumber(n) - tonumber(head)
  local newest = parse_count(redis.call('HGET', session, 'n')) or 0
  -- There is a gap: count what is really there.
  if redis.call('XLEN', inbox) ~= newest - tonumber(head) + 1 then
    ahead = #redis.call('XRANGE', inbox, '-', '(' .. n .. '-0')
  end
  -- Messages that joined the running turn are answered with it and make no turn of their own.
  for _, other in ipairs(joined_messages(session, head)) do
    if other == n then return 0 end
    if tonumber(other) < tonumber(n) then ahead = ahead - 1 end
  end
  return ahead
end
local first_answer = seen_before(prefix, days, id, now)
-- A second delivery of the same message gets the first answer again, and changes nothing.
if first_answer then
  -- The stored answer is `<n>:<seq>`; n is 0 for a message that was not accepted.
  local n, seq = string.match(first_answer, '(%d+):(%d+)')
  return {0, tonumber(n), ahead_of(n), tonumber(seq)}
end
-- One read for all that the decision needs.
local fields = redis.call('HMGET', session, 'n', 'busy', 'bots', 'scope', 'taken', 'kept', 'log')

-- Whether the text is our own, which came back through the platform under another sender.
local function is_echo()
  if ARGV[20] == '' then return false end
  -- Texts of the latest deliveries are kept as SHA-1 for some minutes.
  if channel and string.find(guarded('GET', key('said', name)) or '', ARGV[20], 1, true) then return true end
  -- What was written to the log but not delivered yet.
  for _, entry in ipairs(redis.call('XREVRANGE', KEYS[5], '+', '-', 'COUNT', 2)) do
    local ok, line = pcall(cmsgpack.unpack, entry[2][2])
    if ok and type(line) == 'table' and line.t == 'out' and type(line.content) == 'string'
        and redis.sha1hex(line.content) == ARGV[20] then
      return true
    end
  end
  return false
end
-- The guard against bots that talk to each other counts messages of bots and echoes of our own.
local bots = tonumber(ARGV[17])
-- Internal messages ('' as author) are exempt.
local by_bot = bots > 0 and ARGV[19] ~= '' and (ARGV[19] == 'bot' or is_echo())
-- Times of the latest ones, oldest first; the field is 'paused' once there are too many.
local stamps = {}
if by_bot then
  local state = fields[3] or ''
  for stamp in string.gmatch(state, '%d+') do
    stamps[#stamps + 1] = stamp
  end
  -- Stays paused until a person writes.
  if string.match(state, '^paused') then return {-4, 0, 0, 0} end
  -- `bots` messages within the window, and no person between them.
  if #stamps >= bots and now - tonumber(stamps[#stamps - bots + 1]) < tonumber(ARGV[18]) then
    redis.call('HSET', session, 'bots', 'paused')
    return {-4, 0, 0, 0}
  end
end
-- GCRA: the brake stores the time until which the sender's messages are paid for. A minute's worth
-- may come at once.
local per_minute, paid_until = tonumber(ARGV[16]), 0
if per_minute > 0 and ARGV[19] ~= '' then
  local paid = parse_count(guarded('GET', KEYS[8])) or 0
  -- At most a minute is ever paid ahead; more is from before the server's clock fell back.
  paid_until = (paid > now + 60000 and now or math.max(now, paid)) + 60000 / per_minute
  -- Not written yet: a refused message must not make the wait longer.
  if paid_until - now > 60000 then
    return {-3, math.ceil(paid_until - now - 60000), 0, 0}
  end
end

-- Books an accepted message. Called once it is certain that the message is not refused.
local function count_message()
  if paid_until > 0 then
    redis.call('SET', KEYS[8], integer(paid_until), 'PX', integer(math.max(1, paid_until - now)))
  end
  -- Only the newest stamps are kept.
  if by_bot then
    stamps[#stamps + 1] = integer(now)
    redis.call('HSET', session, 'bots', table.concat(stamps, ' ', math.max(1, #stamps - bots + 1)))
    redis.call('PEXPIRE', session, ARGV[9])
  -- A person wrote: bots may talk again.
  elseif ARGV[19] ~= '' and fields[3] then
    redis.call('HDEL', session, 'bots')
  end
  -- A chat that was closed, because the platform refused it, is open again once its person writes.
  if channel and ARGV[19] == 'person' then pcall(reopen_chat, name) end
end
-- A command: it counts against the limits and is answered elsewhere.
if ARGV[15] == '1' then
  count_message()
  return {1, 0, 0, 0}
end
-- Values of a newer version in the session's own choice fall back to the channel's.
local KNOWN = {queue = true, steer = true, merge = true, interrupt = true, reject = true}
local busy = 'queue'
if ARGV[21] ~= '' then
  local chosen = fields[2]
  busy = chosen and KNOWN[chosen] and chosen or ARGV[21]
end
-- What runs and what waits; a running turn is still in the inbox. This call, the one for the fields
-- above and these checks fail where a key is broken without which no message can be accepted.
local waiting = redis.call('XLEN', inbox)
if waiting > 0 then check_fleet('zset', queue) end
if ARGV[11] ~= '' then check_chat('stream', KEYS[5]) end
local ahead = waiting
-- Messages that joined are part of the turn that runs.
if waiting > 0 and fields[5] then
  local head = redis.call('XRANGE', inbox, '-', '+', 'COUNT', 1)[1]
  ahead = waiting - #parse_joined(fields[5], string.match(head[1], '%d+'))
end
-- Whether a person's message waits or is being answered; ticks and reports of subagents are not.
local function person_waits()
  local from = '-'
  -- In pages of eight: nearly always the first entry decides.
  repeat
    local found = redis.call('XRANGE', inbox, from, '+', 'COUNT', 8)
    for _, one in ipairs(found) do
      if field(one, 'p') ~= 'background' and field(one, 'b') ~= 'joins' then return true end
      from = '(' .. one[1]
    end
  until #found < 8
  return false
end
-- The chat is told that its message was not read, and the sender's client gets `rejected`.
if busy == 'reject' and waiting > 0 and person_waits() then
  count_message()
  -- The message itself still shows in the chat.
  local seq = 0
  if ARGV[11] ~= '' then
    seq = add_line(session, KEYS[5], KEYS[6], ARGV[11], ARGV[10])
  end
  local notice = cmsgpack.unpack(ARGV[25])
  notice.content = string.gsub(notice.content, '{ahead}', tostring(ahead))
  add_line(session, KEYS[5], KEYS[6], cmsgpack.pack(notice), ARGV[10])
  redis.call('PEXPIRE', session, ARGV[9])
  -- Number 0: a second delivery is not answered either.
  remember_seen(prefix, days, id, now, '0:' .. seq)
  return {2, 0, ahead, seq}
end
-- Limits come after `reject`: a full inbox of a rejecting chat is no overload.
if waiting >= tonumber(ARGV[7]) then
  return {-1, 0, waiting, 0}
end
-- The cap counts sessions that wait, so a session that waits already may go on.
if waiting == 0 and redis.call('ZCARD', queue) + (guarded('ZCARD', BACKGROUND) or 0) >= tonumber(ARGV[8]) then
  return {-2, 0, 0, 0}
end
-- From here on the message is accepted; every following write belongs to it.
count_message()
-- How the message may join others is decided here, once. Every worker finds the mark with the
-- message, whatever its own settings are: 'joins', 'steer' or 'merge'.
local due, mark = now, ARGV[22] == '1' and 'joins' or (busy == 'steer' or busy == 'merge') and busy or ''
-- Fields of the inbox: v version, m record, b mark, d due, w window, p fair key, c cuts earlier turns.
local entry = {'v', ARGV[2], 'm', ARGV[1]}
local function add_field(name, value)
  entry[#entry + 1] = name
  entry[#entry + 1] = value
end
if mark ~= '' then add_field('b', mark) end
-- The turn waits for the window to pass, so that what follows can join it.
if mark == 'merge' then
  due = now + tonumber(ARGV[23])
  add_field('d', integer(due))
  add_field('w', ARGV[23])
end
if ARGV[26] ~= '' then add_field('p', ARGV[26]) end
-- 'c' lets a withdrawal of this message find the interruption before it.
if busy == 'interrupt' and waiting > 0 then add_field('c', '1') end
-- The number of a message in its session is its id. A session with lines and no messages has had
-- none yet; one with neither counter is new, or was lost.
local n = append(name, inbox, parse_count(fields[1]) or (not fields[1] and fields[7] and 0) or nil, unpack(entry))
local seq = 0
if ARGV[11] ~= '' then
  seq = add_line(session, KEYS[5], KEYS[6], ARGV[11], ARGV[10])
end
-- Only channels that keep a list of chats per person have this key.
if KEYS[7] ~= '' then
  list_chat(session, KEYS[7], ARGV[12], ARGV[13], ARGV[9], now)
end
-- '=': a sender from outside leaves the memory scope as it is.
if ARGV[14] ~= '' and ARGV[14] ~= '=' then
  redis.call('HSET', session, 'n', n, 'scope', ARGV[14])
else
  redis.call('HSET', session, 'n', n)
end
-- Back to the chat's own memory.
if ARGV[14] == '' and fields[4] then
  redis.call('HDEL', session, 'scope')
end
-- `kept` says when a commit last renewed the expiry; a fiftieth of it is precise enough.
if now - (parse_count(fields[6]) or 0) > tonumber(ARGV[9]) / 50 then
  redis.call('PEXPIRE', session, ARGV[9])
end
-- With this a second delivery gets this answer.
remember_seen(prefix, days, id, now, n .. ':' .. seq)
-- Makes the session due, unless it runs or waits already.
enqueue(queue, KEYS[4], session, member, n, ARGV[26], waiting > 0, due, now)
-- The gateway that delivers the chat shows "typing" while the turn runs.
if channel then mark_due(name, channel, now, ARGV[10]) end
if busy == 'interrupt' and waiting > 0 then
  -- Every turn before this message ends: the one at the head now, the others when they are claimed.
  redis.call('HSET', session, 'cut', n)
  stop_head(session, inbox, queue, KEYS[9], KEYS[4], member, ARGV[24])
end
return {1, n, ahead, seq}
