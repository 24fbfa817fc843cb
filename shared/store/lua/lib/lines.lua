-- The log of a chat, its delivery, and the feed of its person: small facts about all of their chats,
-- for the pages that they have open.
--
-- On these channels people read the log themselves. Lines of every other channel are delivered to
-- a platform, and leave the outbox once they are.
local READ_CHANNELS = {web = true, api = true, cli = true, system = true}
-- Lines of one chat that may wait for delivery; `shared/store/delivery/deliveries.py` has both too.
local OUTBOX_CAP = 100

-- The same for an endpoint of webhooks, which is a chat of this channel: nobody reads it and waits.
local HOOK, HOOK_CAP = 'hook', 10000

-- Returns the channel key of a session whose lines are delivered, nil for one whose log is read. It is
-- the channel, behind `<tenant>/` where a session has a tenant.
local function delivery_channel(name)
  local place = string.match(name, '^[^:]*')
  return not READ_CHANNELS[string.match(place, '[^/]*$')] and place or nil
end

-- Makes a chat due for delivery unless it is due or leased already, and tells the gateways of its
-- channel by pub/sub. A message of pub/sub may be lost: gateways also look by themselves.
local function mark_due(name, channel, now, keep_ms)
  local queue = key('outqueue', channel)
  -- NX keeps the score of a leased chat, which is the deadline of that lease.
  if guarded('ZADD', queue, 'NX', integer(now), name) == 1 then
    guarded('ZADD', PREFIX .. 'outboxes', integer(now), channel)
    redis.call('PUBLISH', key('live', channel), name)
  end
  -- Both keys live as long as the lines they lead to.
  redis.call('PEXPIRE', PREFIX .. 'outboxes', keep_ms)
  redis.call('PEXPIRE', queue, keep_ms)
end

-- Turns lines of a chat's outbox into dead letters, for operators to replay or drop. `unsure`
-- counts how often a post of the first line may have been delivered all the same.
local function dead_letter_lines(name, entries, reason, why, unsure)
  -- '~' lets the server trim whole nodes of the stream, which is much cheaper than an exact cap. A
  -- dead letter of a line names its chat as member 'out:<session>'; one of a message
  -- 'turn:<session>'.
  for i, entry in ipairs(entries) do
    redis.call('XADD', PREFIX .. 'dead', 'MAXLEN', '~', 10000, '*', 'member', 'out:' .. name,
      'n', string.match(entry[1], '%d+'), 'reason', reason, 'why', why, 'unsure', i == 1 and unsure or '0',
      'm', field(entry, 'm'))
  end
  -- Dead letters are kept for 30 days; the id of a stream entry is its time.
  redis.call('XTRIM', PREFIX .. 'dead', 'MINID', integer(now_ms() - 30 * 86400000))
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
    if step > 2 ^ 40 then error({err = 'BROKEN ' .. key_family(stream) .. ' takes no entry'}) end
  end
  return number
end

-- Appends a fact about a chat to the feed of its person, and publishes it. It has names and values in
-- turn, without spaces; `shared/store/delivery/feed.py` has their meaning.
local function add_fact(name, ...)
  -- Only the page follows feeds; its sessions are `web:<person>/<chat>`.
  local person, chat = string.match(name, '^(web:.+)/([%w_-]+)$')
  if not person then return end
  local fact = table.concat({chat, ...}, ' ')
  -- NOMKSTREAM: a feed exists only while pages follow it (`delivery/follow_feed`), so one that nobody
  -- reads costs a look-up. Guarded: while it is broken the person's chats go on.
  local id = guarded('XADD', key('feed', person), 'NOMKSTREAM', 'MAXLEN', '~', 200, '*', 'f', fact)
  if id then
    redis.call('PUBLISH', key('live', '@' .. person), id .. ' ' .. fact)
  end
end

-- Appends a notice that a turn of a chat ended, waits, or will never begin, of which a gateway makes
-- webhooks. `n` is the turn, `seq` the line that says so (0 = none), `what` the live event of its end,
-- or what `shared/store/delivery/notices.py` names.
local function add_notice(name, n, seq, what)
  -- NOMKSTREAM: the stream exists only where a gateway has endpoints, so for all others this is a
  -- look-up. Guarded: the turn counts all the same, and an older list of users does not allow the key.
  -- `shared/store/delivery/notices.py` has the limit too.
  local id = guarded('XADD', PREFIX .. 'notices', 'NOMKSTREAM', 'MAXLEN', '~', 100000, '*', 's', name,
    'n', n, 'q', integer(seq), 'w', what)
  if id then
    redis.call('PUBLISH', key('live', '@notices'), id)
  end
end

-- The same for a line of the person's own, with which they have seen what is above it.
local function add_own_line_fact(session, seq, ...)
  local name = key_id(session)
  -- On a platform nobody asks how far a person has read.
  if string.sub(name, 1, 4) ~= 'web:' then return end
  redis.call('HSET', session, 'acked', integer(seq))
  add_fact(name, 'seq', integer(seq), 'seen', integer(seq), ...)
end

-- Adds a line that is to be delivered. Over the cap the second oldest line is given up: the oldest
-- may be on its way at this moment, and its gateway reports about it later. Returns its number.
local function add_delivery(name, channel, log, live, counter, line, keep_ms)
  -- `outwaits` is only for gauges; the queue of the channel decides who delivers.
  local now, waits = now_ms(), key('outwaits', channel)
  local seq = integer(append(name, log, counter, 'm', line, 'at', integer(now)))
  local cap = channel == HOOK and HOOK_CAP or OUTBOX_CAP
  local oldest = redis.call('XLEN', log) > cap and redis.call('XRANGE', log, '-', '+', 'COUNT', 2)[2]
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
-- With `counter`, the number of the last line, the caller stores the new one; with `kept` the
-- caller
-- knows that the log's expiry was renewed lately. `fact` has what the person's feed gains with the
-- line (see add_fact), false = nothing: the caller tells. Returns the number.
local function add_line(session, log, live, line, keep_ms, counter, kept, fact)
  local name = key_id(log)
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
    -- A worker moves the oldest lines of a long log to its pages (`sessions/page_log`); 10,000 wait for it.
    if seq > 500 then
      if seq % 50 == 0 then
        guarded('ZADD', PREFIX .. 'paging', integer(now_ms()), name)
      end
      redis.call('XTRIM', log, 'MAXLEN', 10000)
    end
    if not kept then
      -- The pages live as long as the log.
      if seq > 500 then
        guarded('PEXPIRE', key('pages', name), keep_ms)
      end
      redis.call('PEXPIRE', log, keep_ms)
    end
    -- Followers tell a line from an event by its beginning: a number here, '{' there.
    redis.call('PUBLISH', live, integer(seq) .. ' ' .. line)
    if fact ~= false then add_fact(name, 'seq', integer(seq), unpack(fact or {})) end
  end
  -- The log did not take the number that was counted.
  if counted ~= nil and counted ~= seq then
    redis.call('HSET', session, 'log', integer(seq))
  end
  return seq
end

-- Moves a chat to the top of its person's list. The first title stays; '' sets none. Returns whether
-- this call gave it its title. Field `titled` says where a title is from: 'words' = the first words of
-- the chat, for which a model may give another one (see sessions/title.lua), 'kept' = the same, and
-- they stay, or the title of the chat of which it is a branch, 'model' or 'person'.
local function list_chat(session, chats, chat, title, keep_ms, now, most)
  local named = title ~= '' and redis.call('HSETNX', session, 'title', title) == 1
  if named then redis.call('HSET', session, 'titled', 'words') end
  -- The list is the person's: while it is broken their chats go on.
  if guarded('ZADD', chats, now, chat) then
    -- A list keeps the 1,000 latest chats, or as many as a person may have. Only a caller that knows
    -- their number (`most`) shortens it: the limit is counted from it.
    if most then redis.call('ZREMRANGEBYRANK', chats, 0, -1 - math.max(1000, most)) end
    redis.call('PEXPIRE', chats, keep_ms)
  end
  return named
end
