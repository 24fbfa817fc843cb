#!lua
-- durable
-- Stores a message in its session's inbox, once, and makes the session due.
-- chats            the chats of one person ('' = the channel keeps no list)
-- brake            of the sender
-- version          schema version of the record
-- seen             prefix of the hashes of seen ids; they are remembered for this many days
-- cap              messages that may wait here
-- sessions_cap     sessions that may wait
-- line             for the chat's log ('' = none)
-- scope            of memory ('' = the chat's own, '=' = as it is)
-- only_count       '1' = only count it: it is a command, which is answered elsewhere
-- per_minute       messages of this sender a minute (0 = no limit)
-- bot_turns        messages of bots without a person between them that pause the chat for bots (0 =
--                  no limit), within bot_window_ms
-- writer           'bot', 'person', or '' = Shoal itself or a program: where a person has a list of
--                  chats, its line is one that they have not seen
-- echo             SHA-1 of the text ('' = too short to be an echo)
-- busy_policy      what is done while a turn runs, unless the session has a choice of its own:
--                  'queue', 'steer', 'merge', 'interrupt', 'reject'; '' = queue, whatever was
--                  chosen
-- joins_others     '1' = it joins others of its kind
-- merge_ms         window of 'merge'
-- rejection        line of 'reject', with {ahead} in its text
-- person           fair key of the turn: a person's, 'background', or '' = its chat's own
-- most_chats       chats that the person may have within 30 days (0 = no limit, -1 = it does not
--                  count for this message)
-- album            that the message is a part of ('' = none); its parts begin one turn together
-- album_ms         how long the turn waits after each part for the next one
-- follows          number of the turn that must be the newest one, and over ('' = any)
-- places           of responses in the background ('' = it is for none), see has_place
-- most_places      that its principal may have (0 = no limit)
-- response         id of the response
-- returns {'accepted' | 'known' | 'rejected', and told so, n, ahead, seq}
--         | {'inbox_full' | 'overloaded' = too many sessions wait | 'chat_limit' | 'background_limit', 0, waiting, 0}
--         | {'sender_limit' | 'bot_loop', ms to wait, 0, 0}
--         | {'moved' | 'running' = it does not follow that turn, 0, 0, 0}
local inbox, session, queue, wake_list, outbox, live, chats, brake, leases, album_parts, places =
  unpack(KEYS)
local record, version, dedupe_id, seen, days, name, member, cap, sessions_cap, keep_session_ms,
  keep_log_ms, line, chat_id, title, scope, only_count, per_minute, bot_turns, bot_window_ms,
  writer, echo, busy_policy, joins_others, merge_ms, control, rejection, person, most_chats,
  album, album_ms, follows, most_places, response = unpack(ARGV)
-- Expiring keys follow the session: they are renewed with every message.
days = tonumber(days)
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
-- When the turn of the message may begin, and whether it only adds to an album: then it is no message
-- of its own for limits and policies.
local album_ends, adds_to_album = now, false
if album ~= '' then
  guarded('ZREM', album_parts, album_part(album, dedupe_id))
  guarded('ZADD', album_parts, integer(now + album_ms), album)
  guarded('PEXPIRE', album_parts, 600000)
  album_ends, adds_to_album = album_due(album_parts, album, now), album_waits(inbox, album)
  -- Also for a part that is refused or known: what was announced must not hold up the others.
  move_album(queue, leases, inbox, session, member, album, album_ends)
end
local first_answer = seen_before(seen, days, dedupe_id, now)
-- A second delivery of the same message gets the first answer again, and changes nothing.
if first_answer then
  -- The stored answer is `<n>:<seq>`; n is 0 for a message that was not accepted.
  local n, seq = string.match(first_answer, '(%d+):(%d+)')
  return {'known', tonumber(n), ahead_of(n), tonumber(seq)}
end
-- One read for all that the decision needs.
local fields = redis.call('HMGET', session, 'n', 'busy', 'bots', 'scope', 'taken', 'kept', 'log', 'began', 'asked')
-- Checked here, so that two messages that continue the same turn cannot both be accepted.
if follows ~= '' then
  -- A message came since, or `/new` ended the conversation of that turn (`began` is its last one).
  if fields[1] ~= follows or (parse_count(fields[8]) or 0) >= tonumber(follows) then return {'moved', 0, 0, 0} end
  if redis.call('XLEN', inbox) > 0 then return {'running', 0, 0, 0} end
end

-- Whether the text is our own, which came back through the platform under another sender.
local function is_echo()
  if echo == '' then return false end
  -- Texts of the latest deliveries are kept as SHA-1 for some minutes.
  if channel and string.find(guarded('GET', key('said', name)) or '', echo, 1, true) then return true end
  -- What was written to the log but not delivered yet.
  for _, entry in ipairs(redis.call('XREVRANGE', outbox, '+', '-', 'COUNT', 2)) do
    local ok, line = pcall(cmsgpack.unpack, entry[2][2])
    if ok and type(line) == 'table' and line.t == 'out' and type(line.content) == 'string'
        and redis.sha1hex(line.content) == echo then
      return true
    end
  end
  return false
end
-- The guard against bots that talk to each other counts messages of bots and echoes of our own.
local bots = tonumber(bot_turns)
-- Internal messages ('' as author) are exempt.
local by_bot = bots > 0 and writer ~= '' and (writer == 'bot' or is_echo())
-- Times of the latest ones, oldest first; the field is 'paused' once there are too many.
local stamps = {}
if by_bot then
  local state = fields[3] or ''
  for stamp in string.gmatch(state, '%d+') do
    stamps[#stamps + 1] = stamp
  end
  -- Stays paused until a person writes.
  if string.match(state, '^paused') then return {'bot_loop', 0, 0, 0} end
  -- `bots` messages within the window, and no person between them.
  if #stamps >= bots and now - tonumber(stamps[#stamps - bots + 1]) < tonumber(bot_window_ms) then
    redis.call('HSET', session, 'bots', 'paused')
    return {'bot_loop', 0, 0, 0}
  end
end
-- GCRA: the brake stores the time until which the sender's messages are paid for. A minute's worth
-- may come at once.
local per_minute, paid_until = tonumber(per_minute), 0
if per_minute > 0 and writer ~= '' and not adds_to_album then
  local paid = parse_count(guarded('GET', brake)) or 0
  -- At most a minute is ever paid ahead; more is from before the server's clock fell back.
  paid_until = (paid > now + 60000 and now or math.max(now, paid)) + 60000 / per_minute
  -- Not written yet: a refused message must not make the wait longer.
  if paid_until - now > 60000 then
    return {'sender_limit', math.ceil(paid_until - now - 60000), 0, 0}
  end
end

-- A chat that has neither messages nor lines is new; others go on, whatever the limit is now. The
-- list
-- keeps at least as many chats as may be counted (see list_chat).
local most_chats = tonumber(most_chats)
if most_chats > 0 and chats ~= NO_KEY and not fields[1] and not fields[7]
    and (guarded('ZCOUNT', chats, integer(now - 30 * 86400000), '+inf') or 0) >= most_chats then
  return {'chat_limit', 0, 0, 0}
end

-- Books an accepted message. Called once it is certain that the message is not refused.
local function count_message()
  if paid_until > 0 then
    redis.call('SET', brake, integer(paid_until), 'PX', integer(math.max(1, paid_until - now)))
  end
  -- Only the newest stamps are kept.
  if by_bot then
    stamps[#stamps + 1] = integer(now)
    redis.call('HSET', session, 'bots', table.concat(stamps, ' ', math.max(1, #stamps - bots + 1)))
    redis.call('PEXPIRE', session, keep_session_ms)
  -- A person wrote: bots may talk again.
  elseif writer ~= '' and fields[3] then
    redis.call('HDEL', session, 'bots')
  end
  -- A chat that was closed, because the platform refused it, is open again once its person writes.
  if channel and writer == 'person' then pcall(reopen_chat, name) end
end
-- A command: it counts against the limits and is answered elsewhere.
if only_count == '1' then
  count_message()
  return {'accepted', 0, 0, 0}
end
-- Values of a newer version in the session's own choice fall back to the channel's.
local KNOWN = {queue = true, steer = true, merge = true, interrupt = true, reject = true}
local busy = 'queue'
if busy_policy ~= '' then
  local chosen = fields[2]
  busy = chosen and KNOWN[chosen] and chosen or busy_policy
end
-- What runs and what waits; a running turn is still in the inbox. This call, the one for the fields
-- above and these checks fail where a key is broken without which no message can be accepted.
local waiting = redis.call('XLEN', inbox)
if waiting > 0 then check_fleet('zset', queue) end
if line ~= '' then check_chat('stream', outbox) end
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
-- Whether the turn at the head waits for its program to run functions (field `asked`, see park.lua).
local function program_waits()
  local expires, n = string.match(fields[9] or '', '^calls %x+ (%d+) %d+ (%d+) ')
  local head = n and now < tonumber(expires) and redis.call('XRANGE', inbox, '-', '+', 'COUNT', 1)[1]
  return head and head[1] == n .. '-0' and not redis.call('HGET', leases, member)
end
-- The program writes something else: nobody will run those functions, so that turn ends.
local abandons = waiting > 0 and person ~= 'background' and program_waits()
-- The chat is told that its message was not read, and the sender's client gets `rejected`.
if busy == 'reject' and not abandons and waiting > 0 and not adds_to_album and person_waits() then
  count_message()
  -- The message itself still shows in the chat.
  local seq = 0
  if line ~= '' then
    seq = add_line(session, outbox, live, line, keep_log_ms, nil, nil, false)
  end
  local notice = cmsgpack.unpack(rejection)
  notice.content = string.gsub(notice.content, '{ahead}', tostring(ahead))
  add_line(session, outbox, live, cmsgpack.pack(notice), keep_log_ms)
  redis.call('PEXPIRE', session, keep_session_ms)
  -- Number 0: a second delivery is not answered either.
  remember_seen(seen, days, dedupe_id, now, '0:' .. seq)
  return {'rejected', 0, ahead, seq}
end
-- Limits come after `reject`: a full inbox of a rejecting chat is no overload.
if waiting >= tonumber(cap) then
  return {'inbox_full', 0, waiting, 0}
end
-- The cap counts sessions that wait, so a session that waits already may go on.
if waiting == 0 and redis.call('ZCARD', queue) + (guarded('ZCARD', BACKGROUND) or 0) >= tonumber(sessions_cap) then
  return {'overloaded', 0, 0, 0}
end
-- Decided with the message: a turn over the limit never begins, and none is forgotten.
if places ~= NO_KEY and not has_place(places, tonumber(most_places), now) then
  return {'background_limit', 0, 0, 0}
end
-- From here on the message is accepted; every following write belongs to it.
count_message()
-- How the message may join others is decided here, once. Every worker finds the mark with the
-- message, whatever its own settings are: 'joins', 'steer', 'merge' or that of its album.
local due, mark = album_ends, joins_others == '1' and 'joins' or (busy == 'steer' or busy == 'merge') and busy
  or album ~= '' and 'album ' .. album or ''
-- Fields of the inbox: v version, m record, b mark, d due, w window, p fair key, c cuts earlier
-- turns, g album.
local entry = {'v', version, 'm', record}
local function add_field(name, value)
  entry[#entry + 1] = name
  entry[#entry + 1] = value
end
if mark ~= '' then add_field('b', mark) end
-- The turn waits for the window to pass, so that what follows can join it.
if mark == 'merge' then
  due = math.max(due, now + merge_ms)
  add_field('d', integer(now + merge_ms))
  add_field('w', merge_ms)
end
if person ~= '' then add_field('p', person) end
if album ~= '' then add_field('g', album) end
-- The parts of an album that interrupts do not interrupt each other.
local interrupts = (abandons or busy == 'interrupt') and waiting > 0 and not adds_to_album
-- 'c' lets a withdrawal of this message find the interruption before it.
if interrupts then add_field('c', '1') end
-- The number of a message in its session is its id. A session with lines and no messages has had
-- none yet; one with neither counter is new, or was lost.
local n = append(name, inbox, parse_count(fields[1]) or (not fields[1] and fields[7] and 0) or nil, unpack(entry))
if places ~= NO_KEY then take_place(places, integer(n), name, response, now, keep_session_ms) end
local seq = 0
if line ~= '' then
  seq = add_line(session, outbox, live, line, keep_log_ms, nil, nil, false)
end
-- With a line of their own a person has seen what is above it.
local sees = chats ~= NO_KEY and seq > 0 and writer ~= ''
-- Only channels that keep a list of chats per person have this key.
if chats ~= NO_KEY then
  local named = list_chat(session, chats, chat_id, title, keep_session_ms, now,
    most_chats >= 0 and most_chats or nil)
  local fact = {'seq', integer(seq), 'at', integer(now), 'running', 1, 'row', (named or not fields[1]) and 1 or 0}
  if sees then
    fact[#fact + 1] = 'seen'
    fact[#fact + 1] = integer(seq)
  end
  add_fact(name, unpack(fact))
else
  add_fact(name, 'running', 1)
end
local changes = {'n', n, 'updated', integer(now)}
-- '=': a sender from outside leaves the memory scope as it is.
if scope ~= '' and scope ~= '=' then
  changes[5], changes[6] = 'scope', scope
end
if sees then
  changes[#changes + 1] = 'acked'
  changes[#changes + 1] = integer(seq)
end
redis.call('HSET', session, unpack(changes))
-- The first message of all, or of what is left after a loss. A restored session has its old age.
if not fields[1] then redis.call('HSETNX', session, 'created', integer(now)) end
-- Back to the chat's own memory.
if scope == '' and fields[4] then
  redis.call('HDEL', session, 'scope')
end
-- `kept` says when a commit last renewed the expiry; a fiftieth of it is precise enough.
if now - (parse_count(fields[6]) or 0) > tonumber(keep_session_ms) / 50 then
  redis.call('PEXPIRE', session, keep_session_ms)
end
-- With this a second delivery gets this answer.
remember_seen(seen, days, dedupe_id, now, n .. ':' .. seq)
-- Makes the session due, unless it runs or waits already.
enqueue(queue, wake_list, session, member, n, person, waiting > 0, due, now)
-- The gateway that delivers the chat shows "typing" while the turn runs.
if channel then mark_due(name, channel, now, keep_log_ms) end
if interrupts then
  -- Every turn before this message ends: the one at the head now, the others when they are claimed.
  redis.call('HSET', session, 'cut', n)
  stop_head(session, inbox, queue, leases, wake_list, member, control)
end
return {'accepted', n, ahead, seq}
