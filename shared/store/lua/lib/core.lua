-- Functions that every script may use. Only those that a script names are sent with it.
-- All times are the server's own, so that the clocks of gateways and workers never matter.
-- This one counts in microseconds.
local function now_us()
  local t = redis.call('TIME')
  -- TIME answers seconds and the microseconds within that second, both as strings.
  return t[1] * 1000000 + t[2]
end

-- The same clock in milliseconds, the unit of every score and deadline.
local function now_ms()
  return math.floor(now_us() / 1000)
end

-- The name of a per-session key; `shared/store/keys.py` builds the same names.
local function key(kind, session)
  return 'shoal:' .. kind .. ':' .. session
end

-- Lua would print a large number as 1.79e+15, which Redis does not accept as a score or an id.
local function integer(number)
  return string.format('%d', number)
end

-- The fence: a caller may write only while the hash of leases names exactly its own acquisition.
-- An older acquisition by the same owner fails, too, because the token differs.
local function holds_lease(leases, member, lease)
  return redis.call('HGET', leases, member) == lease
end

-- Runs a command on a key that the caller can do without. Returns its reply, false for nil and when
-- the key is broken (of another type, say): a script has no rollback, so a broken key of the whole
-- fleet must not end it between two of its writes.
local function guarded(...)
  local reply = redis.pcall(...)
  return not (type(reply) == 'table' and reply.err) and reply
end

-- A command that fails for a key of another type; not TYPE, which older lists of users do not allow.
local SIZE = {stream = 'XLEN', list = 'LLEN', hash = 'HLEN', zset = 'ZCARD'}
-- Raises an error, before the first write of a script, when one of these keys has another type. The
-- error names only the family of the key: it is logged, and the name of a chat is private. Clients
-- know by its first word whether a key of one chat is broken, or one of the whole fleet.
local function check_type(code, wanted, ...)
  for _, name in ipairs({...}) do
    if not guarded(SIZE[wanted], name) then
      error({err = code .. ' ' .. string.match(name, '^shoal:[^:]*') .. ' is no ' .. wanted})
    end
  end
end

-- Checks keys of one chat.
local function check_chat(wanted, ...)
  check_type('BROKEN', wanted, ...)
end

-- Checks keys of the whole fleet.
local function check_fleet(wanted, ...)
  check_type('WRONGTYPE', wanted, ...)
end

-- Parses a number that Shoal stored; nil when it is missing or anything else.
local function parse_count(text)
  local number = text and tonumber(string.match(text, '^%d+$'))
  -- Lua counts exactly up to here; tokens, in microseconds, are a fifth of it.
  return number and number < 2 ^ 53 and number or nil
end

-- Adds to a counter of a hash and returns its value. One that is no number begins again.
local function count_up(hash, name, by)
  local value = guarded('HINCRBY', hash, name, by)
  if not value then
    redis.call('HSET', hash, name, by)
  end
  return value or by
end

-- Wakes one idle worker that waits in BLPOP. The list holds one token at most: more tokens would
-- wake many workers for the same piece of work.
local function wake(list)
  -- Without the list workers still look once a second.
  if guarded('LLEN', list) == 0 then
    guarded('LPUSH', list, '1')
  end
end

-- Subagents have a wake list of their own: a worker without a free slot for one does not wait on
-- it.
local SUBAGENT_WAKE = 'shoal:wake:subagents'

-- Tells a subagent from a turn or a plain job by the prefix of its queue member.
local function is_subagent(member)
  return string.sub(member, 1, 4) == 'sub:'
end

-- Wakes a worker that can run this member; `list` is the wake list of its queue.
local function wake_for(member, list)
  wake(is_subagent(member) and SUBAGENT_WAKE or list)
end

-- The newest time at which each queue was used, in a hash by the queue's name. The server's clock may
-- fall back (NTP, a fail-over to a server that is behind), and what was queued before then lies in
-- the future. The name begins like that of a queue, so that older lists of Redis users allow it.
local CLOCKS = 'shoal:queue:clock'

-- Remembers that a queue was used at `now`, to the second. Never moves that time back: the next
-- `repair_clock` would miss that the clock fell.
local function note_clock(queue, now)
  if now - (parse_count(guarded('HGET', CLOCKS, queue)) or 0) >= 1000 then
    guarded('HSET', CLOCKS, queue, integer(now))
  end
end

-- Returns by how many ms the clock fell back since `queues` were used, 0 if it did not. Everything in
-- them that would wait for longer than a lease is moved by as much, which leaves it its own delay. A
-- lease of a living worker gets its right time with the next renewal.
local function repair_clock(queues, lease_ms, now)
  local fell = (parse_count(guarded('HGET', CLOCKS, queues[1])) or 0) - now
  if math.abs(fell) >= 1000 then
    guarded('HSET', CLOCKS, queues[1], integer(now))
  end
  -- Less than a second is noise, and delays nothing that anybody notices.
  if fell < 1000 then return 0 end
  for _, queue in ipairs(queues) do
    local found = guarded('ZRANGEBYSCORE', queue, '(' .. integer(now + lease_ms), '+inf', 'WITHSCORES') or {}
    for i = 1, #found, 2 do
      local member, due = found[i], tonumber(found[i + 1])
      local asked = string.sub(member, 1, 5) == 'turn:'
        and guarded('HGET', key('session', string.sub(member, 6)), 'asked')
      -- An open question ends at the time that it shows to people.
      if not asked or string.match(asked, '^open %x+ (%d+)') ~= integer(due) then
        redis.call('ZADD', queue, integer(math.max(now, due - fell)), member)
      end
    end
  end
  return fell
end

-- Returns the value of one field of a stream entry, nil when the entry lacks it.
local function field(entry, name)
  -- An entry is {id, {name, value, name, value, ...}}.
  for i = 1, #entry[2], 2 do
    if entry[2][i] == name then return entry[2][i + 1] end
  end
end

-- Counts that the owner of a turn or subagent died. From its second crash on the work runs isolated,
-- in a child of its worker, and most likely did not kill the worker itself: such deaths are counted
-- in field `spared`, and `effective_crashes` counts three of them as one.
local function count_crash(record)
  local isolated = (tonumber(redis.call('HGET', record, 'crashes') or 0) or 0) >= 2
  count_up(record, isolated and 'spared' or 'crashes', 1)
end

-- Adds up both counters as a decimal string: every direct crash, and a third of the isolated ones.
local function effective_crashes(crashes, isolated_crashes)
  -- The usual case: no counter exists, and nothing needs to be computed.
  if not crashes and not isolated_crashes then return '0' end
  return integer((tonumber(crashes) or 0) + math.floor((tonumber(isolated_crashes) or 0) / 3))
end

-- Reads both counters of a session or subagent and adds them up.
local function crashes_of(record)
  local fields = redis.call('HMGET', record, 'crashes', 'spared')
  return effective_crashes(fields[1], fields[2])
end

-- Parses field `taken` of a session, `<turn> <message> <message> ...`: the numbers, in order, of
-- the messages that joined turn n. They stay in the inbox until the turn ends.
local function parse_joined(joined, n)
  local numbers = {}
  if not joined then return numbers end
  for number in string.gmatch(joined, '%d+') do
    numbers[#numbers + 1] = number
  end
  -- The first number names the turn; what an earlier turn left behind counts as nothing.
  return table.remove(numbers, 1) == n and numbers or {}
end

-- Reads and parses that field.
local function joined_messages(session, n)
  return parse_joined(redis.call('HGET', session, 'taken'), n)
end

-- A session waits in one of two queues: BACKGROUND when no person waits for its next answer, else
-- the queue of turns. A running turn is always in the queue of turns, and so is its only lease.
-- FAIR_KEYS names for a member whose turn it is: a person's hash, or 'background'. A member that
-- is missing there counts as its chat's own. A '+' in front: the turn was given back and keeps its
-- place in the order.
-- LAST_SERVED holds when each person's turn last began while others waited, and under 'background'
-- how many turns began since the last one of the background.
local BACKGROUND, FAIR_KEYS, LAST_SERVED = 'shoal:queue:background', 'shoal:shares', 'shoal:served'

-- Writes whose turn a member is; nil or '' means its chat's own, which is the absence of an entry.
local function set_fair_key(member, fair_key)
  if fair_key and fair_key ~= '' then
    guarded('HSET', FAIR_KEYS, member, fair_key)
  else
    guarded('HDEL', FAIR_KEYS, member)
  end
end

-- Removes a session that has nothing left to do from both queues.
local function remove_from_queue(queue, member)
  guarded('ZREM', queue, member)
  guarded('ZREM', BACKGROUND, member)
  guarded('HDEL', FAIR_KEYS, member)
end

-- Queues a session that does not run, as the message at the head of its inbox demands. Field `p` of
-- that message is the fair key. A person who waits after a scheduled message pulls it forward.
local function requeue(queue, wake_list, session, member, head, due, now)
  local fair_key = field(head, 'p')
  if fair_key ~= 'background' then
    -- The head is a person's message: it belongs into the queue of turns.
    guarded('ZADD', queue, due, member)
    guarded('ZREM', BACKGROUND, member)
    set_fair_key(member, fair_key)
  -- The head is background work, but a person's message (number `person`) waits after it, and
  -- would wait for the background queue, too.
  elseif (parse_count(redis.call('HGET', session, 'person')) or 0) > tonumber(string.match(head[1], '%d+')) then
    guarded('ZADD', queue, integer(due), member)
    guarded('ZREM', BACKGROUND, member)
    -- That work counts for the chat, not for the person: they did not ask for it.
    set_fair_key(member, nil)
  -- Nobody waits: the session moves to the background queue, unless that one is broken.
  elseif guarded('ZADD', BACKGROUND, integer(due), member) then
    guarded('ZREM', queue, member)
    set_fair_key(member, fair_key)
  else
    guarded('ZADD', queue, integer(due), member)
  end
  if due <= now then
    wake(wake_list)
  end
end

-- Returns when the turn of a message may begin: now, or at the end of the window of `merge`, which is
-- field `d`. Field `w` is the length of that window: a message that is not in it yet was stored
-- before the clock fell back.
local function due_of(head, now)
  local ends, window = parse_count(field(head, 'd')) or 0, parse_count(field(head, 'w'))
  if window and now < ends - window then return now end
  return math.max(now, ends)
end

-- Queues a session whose head has just been answered or withdrawn.
local function requeue_next(queue, wake_list, session, member, head, now)
  requeue(queue, wake_list, session, member, head, due_of(head, now), now)
end

-- Queues a session to which message n has just come; `others_wait`: it is not the only message.
-- What runs or waits already keeps its place, except that a message of a person takes the session
-- out of the background.
local function enqueue(queue, wake_list, session, member, n, fair_key, others_wait, due, now)
  if fair_key == 'background' then
    -- A member of the queue of turns runs or waits there: the new message simply waits after it.
    if guarded('ZSCORE', queue, member) then return end
    local added = guarded('ZADD', BACKGROUND, 'NX', integer(due), member)
    if added == 1 then
      set_fair_key(member, fair_key)
      if due <= now then
        wake(wake_list)
      end
    end
    -- Where the background queue is broken, the queue of turns takes the session.
    if added then return end
  end
  -- When the session entered the background queue, if it is there.
  local background_since = false
  if others_wait then
    -- `requeue` reads this when the head changes: a person waits after background work.
    redis.call('HSET', session, 'person', n)
    background_since = guarded('ZSCORE', BACKGROUND, member)
  end
  if background_since then
    -- It moves with the time at which it was due there; it does not lose what it already waited.
    guarded('ZREM', BACKGROUND, member)
    due = math.max(now, tonumber(background_since))
  end
  -- NX: a session that runs has its lease's deadline as its score, which must not move.
  if guarded('ZADD', queue, 'NX', integer(due), member) == 1 then
    set_fair_key(member, fair_key)
    note_clock(queue, now)
    if due <= now then
      wake(wake_list)
    end
  end
end

-- On these channels people read the log themselves. Lines of every other channel are delivered to
-- a platform, and leave the outbox once they are.
local READ_CHANNELS = {web = true, api = true, cli = true, system = true}
-- Lines of one chat that may wait for delivery; `shared/store/delivery/deliveries.py` has both too.
local OUTBOX_CAP = 100

-- Returns the channel of a session whose lines are delivered, nil for one whose log is read.
local function delivery_channel(name)
  local channel = string.sub(name, 1, string.find(name, ':', 1, true) - 1)
  return not READ_CHANNELS[channel] and channel or nil
end

-- Makes a chat due for delivery unless it is due or leased already, and tells the gateways of its
-- channel by pub/sub. A message of pub/sub may be lost: gateways also look by themselves.
local function mark_due(name, channel, now, keep_ms)
  local queue = key('outqueue', channel)
  -- NX keeps the score of a leased chat, which is the deadline of that lease.
  if guarded('ZADD', queue, 'NX', integer(now), name) == 1 then
    guarded('ZADD', 'shoal:outboxes', integer(now), channel)
    redis.call('PUBLISH', key('live', channel), name)
  end
  -- Both keys live as long as the lines they lead to.
  redis.call('PEXPIRE', 'shoal:outboxes', keep_ms)
  redis.call('PEXPIRE', queue, keep_ms)
end

-- Turns lines of a chat's outbox into dead letters, for operators to replay or drop. `unsure`
-- counts how often a post of the first line may have been delivered all the same.
local function dead_letter_lines(name, entries, reason, why, unsure)
  -- '~' lets the server trim whole nodes of the stream, which is much cheaper than an exact cap. A
  -- dead letter of a line names its chat as member 'out:<session>'; one of a message
  -- 'turn:<session>'.
  for i, entry in ipairs(entries) do
    redis.call('XADD', 'shoal:dead', 'MAXLEN', '~', 10000, '*', 'member', 'out:' .. name,
      'n', string.match(entry[1], '%d+'), 'reason', reason, 'why', why, 'unsure', i == 1 and unsure or '0',
      'm', field(entry, 'm'))
  end
  -- Dead letters are kept for 30 days; the id of a stream entry is its time.
  redis.call('XTRIM', 'shoal:dead', 'MINID', integer(now_ms() - 30 * 86400000))
end

-- Returns a number after everything that is known of a chat: its counters, its messages, its lines.
-- For a session that lost its counters while its streams are still there.
local function next_number(name)
  local newest, counters = 0, redis.call('HMGET', key('session', name), 'n', 'done', 'log')
  for i = 1, 3 do
    newest = math.max(newest, parse_count(counters[i]) or 0)
  end
  for _, kind in ipairs({'inbox', 'outbox'}) do
    local last = (guarded('XREVRANGE', key(kind, name), '+', '-', 'COUNT', 1) or {})[1]
    newest = math.max(newest, last and parse_count(string.match(last[1], '^%d+')) or 0)
  end
  return newest + 1
end

-- Appends an entry to a stream of a chat under the number that follows `counter` (nil: it is lost),
-- and returns that number. A stream that is ahead of its counter goes on after everything known: a
-- refusal here would refuse every later entry, too.
local function append(name, stream, counter, ...)
  local number, step = counter and counter + 1 or next_number(name), 1
  while not guarded('XADD', stream, integer(number) .. '-0', ...) do
    -- The newest entries of the stream may be deleted, which leaves its last number unknown.
    number, step = math.max(number, next_number(name)) + step - 1, step * 2
    if step > 2 ^ 40 then error({err = 'BROKEN ' .. string.match(stream, '^shoal:[^:]*') .. ' takes no entry'}) end
  end
  return number
end

-- Adds a line that is to be delivered. Over the cap the second oldest line is given up: the oldest
-- may be on its way at this moment, and its gateway reports about it later. Returns its number.
local function add_delivery(name, channel, log, live, counter, line, keep_ms)
  -- `outwaits` is only for gauges; the queue of the channel decides who delivers.
  local now, waits = now_ms(), key('outwaits', channel)
  local seq = integer(append(name, log, counter, 'm', line, 'at', integer(now)))
  local oldest = redis.call('XLEN', log) > OUTBOX_CAP and redis.call('XRANGE', log, '-', '+', 'COUNT', 2)[2]
  -- It stays where it is while dead letters cannot be stored.
  if oldest and pcall(dead_letter_lines, name, {oldest}, 'outbox_full', '', '0') then
    redis.call('XDEL', log, oldest[1])
    -- The next gateway that leases the chat counts these in its metrics.
    guarded('HINCRBY', key('out', name), 'full', 1)
    redis.call('PEXPIRE', key('out', name), keep_ms)
  end
  redis.call('PEXPIRE', log, keep_ms)
  -- NX: the score is the age of the oldest undelivered line, for the gauges.
  guarded('ZADD', waits, 'NX', integer(now), name)
  redis.call('PEXPIRE', waits, keep_ms)
  mark_due(name, channel, now, keep_ms)
  redis.call('PUBLISH', live, seq .. ' ' .. line)
  return tonumber(seq)
end

-- Appends a line to a chat's log under the next number, and shows it to whoever follows the chat.
-- With `counter`, the number of the last line, the caller stores the new one; with `kept` the caller
-- knows that the log's expiry was renewed lately. Returns the number.
local function add_line(session, log, live, line, keep_ms, counter, kept)
  -- `log` is 'shoal:outbox:<session>'; the session's name begins at character 14.
  local name = string.sub(log, 14)
  local channel, counted = delivery_channel(name), nil
  if not counter then
    counted = guarded('HINCRBY', session, 'log', 1)
    counter = counted and counted - 1
  end
  local seq
  if channel then
    seq = add_delivery(name, channel, log, live, counter, line, keep_ms)
  else
    seq = append(name, log, counter, 'm', line)
    -- 500 lines stay in any case, and up to 2,000 while a person has not acknowledged them.
    if seq > 500 then
      local unread = seq - (parse_count(redis.call('HGET', session, 'acked')) or 0)
      redis.call('XTRIM', log, 'MAXLEN', math.min(2000, math.max(500, unread)))
    end
    if not kept then
      redis.call('PEXPIRE', log, keep_ms)
    end
    -- Followers tell a line from an event by its beginning: a number here, '{' there.
    redis.call('PUBLISH', live, integer(seq) .. ' ' .. line)
  end
  -- The log did not take the number that was counted.
  if counted ~= nil and counted ~= seq then
    redis.call('HSET', session, 'log', integer(seq))
  end
  return seq
end

-- Appends ARGV[first] to ARGV[last] to a conversation of `size` bytes, and drops its oldest entries
-- while it is over `cap` bytes. Returns the entries it has now, those dropped, and its new size,
-- which the caller stores.
local function add_history(session, history, first, last, cap, size)
  local length, dropped = 0, 0
  -- Lua's stack limits how many values `unpack` may return at once.
  for from = first, last, 1000 do
    length = redis.call('RPUSH', history, unpack(ARGV, from, math.min(last, from + 999)))
  end
  -- The size of a conversation is the sum of its records, kept by the caller next to it. It begins
  -- again with the conversation, which may have been lost.
  if length == last - first + 1 then
    size = 0
  end
  for i = first, last do
    size = size + #ARGV[i]
  end
  -- One entry always stays, however large it is.
  while size > cap and length > 1 do
    size = size - #redis.call('LPOP', history)
    length, dropped = length - 1, dropped + 1
  end
  if dropped > 0 then
    -- `mark` counts the entries that ever left at the head: a consolidation that read the dropped
    -- entries finds another mark and leaves the rest alone.
    count_up(session, 'mark', dropped)
  end
  return length, dropped, size
end

-- Stores a new text of a MEMORY.md and returns its version. A version is a time, so that the memory
-- of a scope that was forgotten and begun again never reuses an old version.
local function set_memory(memory, text)
  local version = integer(math.max(now_us(), (tonumber(redis.call('HGET', memory, 'v')) or 0) + 1))
  redis.call('HSET', memory, 'text', text, 'v', version)
  return version
end

-- Jobs that keep memory: they can wait a minute after a crash of their worker.
local RESTING = {consolidate = true, idle = true, archive = true, rework = true}
-- Counts that a worker died while it ran this job or another one together with it. Returns how many
-- milliseconds the job must rest now.
local function count_job_crash(job)
  local crashes = key('crashed', job)
  redis.call('INCR', crashes)
  -- A day without a crash clears the count.
  redis.call('PEXPIRE', crashes, 86400000)
  return RESTING[string.match(job, '^(%a+):')] and 60000 or 0
end

-- Ids of messages that came are kept in one hash a day, so that forgetting is cheap: a whole hash
-- expires. A hash of millions would hold the server up when it goes, so one that is full stays as it
-- is, and each further id goes to one of 256 parts by its SHA-1: `<prefix><day>:3f`, then
-- `<prefix><day>:3f0a`. Field SPLIT of a hash is no id, which has a '/'. It says '+' once there are
-- parts, '1' where there may be, and '0' where not: releases before this one know only the day's own
-- hash, so parts begin on the second day after an update, when none of them runs any more.
local SEEN_CAP, SPLIT = 50000, ':split'
-- Returns the name of a day's hash, or of the part for ids with this SHA-1 at a depth.
local function seen_hash(prefix, day, digest, depth)
  return prefix .. day .. (depth > 0 and ':' .. string.sub(digest, 1, 2 * depth) or '')
end

-- Returns what was stored for a message id, on this day or one of the `days` before; nil if unknown.
local function seen_before(prefix, days, id, now)
  local today, digest = math.floor(now / 86400000), nil
  -- Newest day first: nearly every repeated delivery comes within seconds.
  for day = today, today - days, -1 do
    local depth, found = 0, nil
    repeat
      found = redis.call('HMGET', seen_hash(prefix, day, digest, depth), id, SPLIT)
      if found[1] then return found[1] end
      depth, digest = depth + 1, digest or found[2] == '+' and redis.sha1hex(id)
    until found[2] ~= '+'
  end
end

-- Stores the answer to a message id for the following days.
local function remember_seen(prefix, days, id, now, answer)
  local today, digest, depth = math.floor(now / 86400000), nil, 0
  while true do
    local hash = seen_hash(prefix, today, digest, depth)
    local size = redis.call('HLEN', hash)
    if size == 0 then
      -- The first id of the day, or of a part. A part is this release's own. A day's hash may be
      -- split if the one before was begun by this release, too, or if there is none.
      local before = depth == 0 and prefix .. (today - 1)
      local may = not before or redis.call('EXISTS', before) == 0 or redis.call('HGET', before, SPLIT)
      redis.call('HSET', hash, SPLIT, may and '1' or '0')
      redis.call('EXPIRE', hash, (days + 1) * 86400)
    end
    local split = size >= SEEN_CAP and redis.call('HMGET', hash, SPLIT, id)
    -- Room, not to be split, or the id is in it: an answer may change.
    if not split or split[2] or (split[1] ~= '1' and split[1] ~= '+') then
      redis.call('HSET', hash, id, answer)
      return
    end
    redis.call('HSET', hash, SPLIT, '+')
    depth, digest = depth + 1, digest or redis.sha1hex(id)
  end
end

-- Asks for the end of the turn at the head of a session, running or waiting, and of no other turn.
-- Returns its number, nil when the inbox is empty.
local function stop_head(session, inbox, queue, leases, wake_list, member, control)
  local head = redis.call('XRANGE', inbox, '-', '+', 'COUNT', 1)[1]
  if not head then return end
  local n = string.match(head[1], '%d+')
  -- Durable: a worker that misses the message on the control channel reads this at its next
  -- renewal.
  redis.call('HSET', session, 'stop', n)
  if not redis.call('HGET', leases, member) then
    -- The turn waits, perhaps for a model that is unavailable. It becomes due now, so that a worker
    -- claims it and ends it. From the background it moves over; else its score changes (XX).
    guarded('ZADD', queue, guarded('ZREM', BACKGROUND, member) == 1 and 'NX' or 'XX', now_ms(), member)
    guarded('HDEL', FAIR_KEYS, member)
    wake(wake_list)
  end
  -- The worker that runs it, if any, listens here and stops at once.
  redis.call('PUBLISH', control, member .. ' ' .. n)
  return n
end

-- Records the answer to the question that a parked turn waits for as an entry of its ledger, where
-- whichever worker claims the turn finds it. `answer` has the member, the keys, and id, yes ('1'),
-- request, sender, digest ('' = not named), line, log_ms.
-- Returns 1 the answer counts, 0 an earlier try of this request counted, -1 unknown question, -2 it
-- was answered already, -3 too late, -4 its turn has ended, -5 this sender was not asked, -6 other
-- arguments are meant, -7 a worker holds the turn at this moment.
local function resolve_approval(answer)
  local now = now_ms()
  -- Field `asked`: `<state> <id> <expires ms> <step> <turn> <request> <tool>`, state open, yes or
  -- no.
  local fields = redis.call('HGET', answer.session, 'asked') or ''
  local state, id, expires, step, n, request, tool = string.match(fields, '^(%a+) (%x+) (%d+) (%d+) (%d+) (%S+) (.*)$')
  if id ~= answer.id then return -1 end
  -- The same request again means that the first reply was lost.
  if state ~= 'open' then return request == answer.request and 0 or -2 end
  if now >= tonumber(expires) then return -3 end
  -- A turn that was stopped, or cut by a newer message, will never read an answer.
  local stop = redis.call('HMGET', answer.session, 'stop', 'cut')
  local ended = stop[1] == n or tonumber(stop[2] or 0) > tonumber(n)
  -- The question must still be the newest step; otherwise the turn has moved on.
  local last = redis.call('XREVRANGE', answer.ledger, '+', '-', 'COUNT', 1)[1]
  if ended or not last or last[1] ~= step .. '-0' then return -4 end
  local question = cmsgpack.unpack(field(last, 'm'))
  if question.t ~= 'approval' or question.id ~= answer.id then return -4 end
  -- An empty list of people lets everybody who may write in the chat answer.
  local allowed = #(question.people or {}) == 0
  for _, one in ipairs(question.people or {}) do
    allowed = allowed or one == answer.sender
  end
  if not allowed then return -5 end
  -- A page or a button names the arguments it showed; they must be those that would run.
  if answer.digest ~= '' and answer.digest ~= question.digest then return -6 end
  -- A lease means that a worker reads the ledger now: appending to it would open a hole.
  if redis.call('HGET', answer.leases, answer.member) then return -7 end
  check_chat('stream', answer.log)
  check_fleet('zset', answer.queue)

  -- The same shape as `DecisionEntry` in shared/messages/transcript.py.
  local record = cmsgpack.pack({
    t = 'decision', call_id = question.call_id, turn = tonumber(n), yes = answer.yes == '1',
    by = answer.sender, at = now,
  })
  redis.call('XADD', answer.ledger, integer(tonumber(step) + 1) .. '-0', 'm', record)
  -- `ledger` counts the bytes of the ledger against its cap.
  count_up(answer.session, 'ledger', #record)
  -- The request is stored with the answer, so that a repeated call recognises itself.
  redis.call('HSET', answer.session, 'asked',
    table.concat({answer.yes == '1' and 'yes' or 'no', id, expires, step, n, answer.request, tool}, ' '))
  add_line(answer.session, answer.log, answer.live, answer.line, answer.log_ms)
  -- A person waits for the turn now, even if it was background work. It returns to the place in the
  -- queue that it had when it was first claimed.
  local place = tonumber(string.match(redis.call('HGET', answer.session, 'place') or '', '^%d+'))
  local fair_key = guarded('HGET', FAIR_KEYS, answer.member)
  guarded('ZREM', BACKGROUND, answer.member)
  redis.call('ZADD', answer.queue, integer(math.min(now, place or now)), answer.member)
  if place then
    -- `<place> <now>`: the wait that is reported for it counts from here.
    redis.call('HSET', answer.session, 'place', integer(place) .. ' ' .. integer(now))
  end
  if fair_key == 'background' then
    -- Background work that a person answered runs as the chat's own.
    set_fair_key(answer.member, nil)
  elseif fair_key and place and string.sub(fair_key, 1, 1) ~= '+' then
    -- '+' exempts it from fair sharing: it was begun already.
    set_fair_key(answer.member, '+' .. fair_key)
  end
  wake(answer.wake)
  return 1
end

-- Moves a chat to the top of its person's list. The first title stays; '' sets none.
local function list_chat(session, chats, chat, title, keep_ms, now)
  if title ~= '' then
    redis.call('HSETNX', session, 'title', title)
  end
  -- The list is the person's: while it is broken their chats go on.
  if guarded('ZADD', chats, now, chat) then
    -- A list keeps the 1,000 latest chats.
    redis.call('ZREMRANGEBYRANK', chats, 0, -1001)
    redis.call('PEXPIRE', chats, keep_ms)
  end
end

-- Removes one schedule of a chat and returns whether it existed. With the last one, everything that
-- is stored about the chat's schedules goes, too.
local function drop_schedule(name, id)
  local all = key('cron', name)
  guarded('ZREM', 'shoal:cron', id .. ':' .. name)
  local existed = redis.call('HDEL', all, id) == 1
  redis.call('HDEL', all, id .. ':tick', id .. ':runs', id .. ':missed', id .. ':last')
  -- A field without a colon is a schedule; `<id>:tick` and the like only describe one.
  for _, one in ipairs(redis.call('HKEYS', all)) do
    if not string.find(one, ':') then return existed end
  end
  redis.call('DEL', all)
  return existed
end

-- Removes every schedule of a chat; returns how many keys were deleted.
local function drop_schedules(name)
  for _, one in ipairs(guarded('HKEYS', key('cron', name)) or {}) do
    if not string.find(one, ':') then
      guarded('ZREM', 'shoal:cron', one .. ':' .. name)
    end
  end
  return redis.call('DEL', key('cron', name))
end

-- Pauses a chat's schedules, which are given up after `ms`, or resumes them (ms ''). Returns how
-- many schedules that changed.
local function pause_schedules(name, ms)
  local all = key('cron', name)
  local paused = redis.call('HGET', all, ':paused')
  -- Already as wanted: a repeated call must not move their times again.
  if (ms == '') == not paused then return 0 end
  local count = 0
  local until_ms = ms ~= '' and integer(now_ms() + tonumber(ms))
  for _, id in ipairs(redis.call('HKEYS', all)) do
    if not string.find(id, ':') then
      count = count + 1
      -- Paused schedules come due only at the end of the pause, when they are dropped; resumed ones
      -- return to their own next tick.
      redis.call('ZADD', 'shoal:cron', until_ms or redis.call('HGET', all, id .. ':tick'), id .. ':' .. name)
    end
  end
  if not until_ms then
    redis.call('HDEL', all, ':paused')
  elseif count > 0 then
    redis.call('HSET', all, ':paused', until_ms)
  end
  return count
end

-- Allows deliveries to a chat again and resumes its schedules; returns whether it was closed.
local function reopen_chat(name)
  if redis.call('HDEL', key('out', name), 'closed') == 0 then return false end
  pause_schedules(name, '')
  return true
end

-- Slots of subagents have become free: makes those that wait longest, in the session and in the
-- whole fleet, due again.
local function wake_waiting_subagents(name, freed, now)
  for _, waiting in ipairs({key('children', name), 'shoal:subagents'}) do
    -- A positive score is the time since when one waits for a slot; 0 means that it has one. Four
    -- at least, because some of the first may be held back by the other cap.
    for _, next in ipairs(guarded('ZRANGEBYSCORE', waiting, '(0', '+inf', 'LIMIT', 0, math.max(4, freed)) or {}) do
      guarded('ZADD', 'shoal:queue:jobs', 'XX', now, 'sub:' .. next)
      wake(SUBAGENT_WAKE)
    end
  end
end

-- Takes a subagent out of all queues and lists. Its record stays for an hour, for late questions.
local function end_subagent(id, name, outcome, now)
  local child, children, member = key('child', id), key('children', name), 'sub:' .. id
  guarded('ZREM', 'shoal:queue:jobs', member)
  guarded('HDEL', 'shoal:leases:jobs', member)
  redis.call('DEL', key('ledger', id))
  guarded('ZREM', 'shoal:subagents', id)
  redis.call('HSET', child, 'state', outcome, 'ended', integer(now))
  -- Counters of its attempts mean nothing any more.
  redis.call('HDEL', child, 'errors', 'crashes', 'spared', 'apart', 'tries', 'away', 'ledger')
  redis.call('PEXPIRE', child, 3600000)
  -- Ended ones have minus their end as score: those of more than an hour ago leave the list.
  redis.call('ZREMRANGEBYSCORE', children, integer(3600000 - now), '(0')
  redis.call('ZADD', children, integer(-now), id)
  -- 100 ended ones are kept per session; a session that spawns many would grow without bound.
  for _, old in ipairs(redis.call('ZRANGEBYSCORE', children, '-inf', '(0', 'LIMIT', 100, 10)) do
    redis.call('DEL', key('child', old))
    redis.call('ZREM', children, old)
  end
  -- The last running one has ended, so the list itself may expire.
  if redis.call('ZCOUNT', children, 0, '+inf') == 0 then
    redis.call('PEXPIRE', children, 3600000)
  end
end

-- Ends subagents of a session without a report to its chat: all, those of one turn, or one ('' =
-- any). Returns how many. A worker that runs one loses its lease and can write nothing more.
local function cancel_subagents(name, turn, only)
  local now, ended = now_ms(), 0
  for _, id in ipairs(guarded('ZRANGEBYSCORE', key('children', name), 0, '+inf') or {}) do
    local turn_of = guarded('HGET', key('child', id), 'turn')
    if (turn == '' or turn == turn_of) and (only == '' or only == id) then
      -- The message only hurries the worker; deleting the lease is what stops its writes.
      redis.call('PUBLISH', 'shoal:control', 'sub:' .. id .. ' 1')
      end_subagent(id, name, 'cancelled', now)
      ended = ended + 1
    end
  end
  if ended > 0 then
    wake_waiting_subagents(name, ended, now)
  end
  return ended
end

-- Cancels every subagent of a session and deletes all records of them; returns how many keys went.
local function drop_subagents(name)
  cancel_subagents(name, '', '')
  local removed = 0
  for _, id in ipairs(guarded('ZRANGE', key('children', name), 0, -1) or {}) do
    removed = removed + redis.call('DEL', key('child', id))
  end
  return removed + redis.call('DEL', key('children', name))
end
