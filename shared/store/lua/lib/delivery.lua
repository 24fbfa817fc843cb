-- Functions that the scripts of delivery share. The state of a chat's delivery is one hash:
--   sending  '<line> <post> <newest> <lease>' while a post may be on its way; `newest` is the last
--            line that waited then
--   done     '<line> <posts>': posts of the first line that the platform has
--   unsure   posts of the first line that were sent again, so that one may exist twice
--   tries    how often the chat was put off since something of it arrived
--   bubble   '<turn> <id>' of the message into which a turn is streamed
--   meant    '<turn> <key>' of such a message that was about to be sent; its id is not known
--   shown    '<turn> <characters>' of the text that was streamed into it
--   closed   since when nothing may be sent there, in ms
--   notes    what the platform's code stored about the chat, msgpack
--   full     lines given up since a gateway last leased the chat, because too many waited
--
-- Returns the oldest entry of a stream.
local function first_entry(stream)
  return redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
end

-- The number of a line or a message: an entry's id is `<number>-0`.
local function entry_number(entry)
  return string.match(entry[1], '%d+')
end

-- Returns how many posts of this line the platform has.
local function posts_done(state, line)
  local of, posts = string.match(redis.call('HGET', state, 'done') or '', '^(%d+) (%d+)$')
  -- What is stored about an older line counts as nothing.
  return of == line and tonumber(posts) or 0
end

-- Returns the lease under which this post may be on its way, and the newest line that waited then.
local function sending_mark(state, line, post)
  local of, its, newest, lease =
    string.match(redis.call('HGET', state, 'sending') or '', '^(%d+) (%d+) (%d+) (%S+)$')
  if of == line and its == tostring(post) then return lease, newest end
end

-- Compares a post with the state: 0 it is the next one, -1 it ended before, 1 it is ahead of the
-- state, which means that the server lost its latest writes.
local function post_position(state, box, line, post)
  local first = first_entry(box)
  local head = first and tonumber(entry_number(first))
  -- The line is delivered already: a repeated report.
  if not head or tonumber(line) < head then return -1 end
  -- Older lines that the gateway saw delivered are back in the outbox.
  if tonumber(line) > head then return 1 end
  local next = posts_done(state, line)
  return tonumber(post) == next and 0 or tonumber(post) < next and -1 or 1
end

-- Returns everything a gateway must know to go on with a chat. A mark of another lease means that
-- nobody knows whether that post arrived.
local function chat_row(state, box, inbox, lease, many, now)
  local fields = redis.call('HMGET', state, 'bubble', 'closed', 'notes', 'tries', 'meant', 'shown')
  local entries = {}
  -- Number, age in ms, record; a line without a time counts as new.
  for i, entry in ipairs(redis.call('XRANGE', box, '-', '+', 'COUNT', many)) do
    entries[i] = {entry_number(entry), integer(now - tonumber(field(entry, 'at') or now)), field(entry, 'm')}
  end
  local line = entries[1] and entries[1][1] or ''
  local done = posts_done(state, line)
  local mark = sending_mark(state, line, done)
  -- The turn at the head of the inbox decides whether the chat shows "typing".
  local head = first_entry(inbox)
  return {
    entries, done, mark and mark ~= lease and 1 or 0, fields[1] or '', fields[2] and 1 or 0,
    fields[3] or '', fields[4] or '0',
    head and entry_number(head) or '', head and field(head, 'p') == 'background' and 1 or 0, fields[5] or '',
    fields[6] or '',
  }
end

-- Gives a chat to whichever gateway comes next, after `delay_ms`. Gateways are told when that is
-- now.
local function release_chat(queue, leases, name, delay_ms)
  redis.call('HDEL', leases, name)
  redis.call('ZADD', queue, integer(now_ms() + delay_ms), name)
  if delay_ms == 0 then
    redis.call('PUBLISH', key('live', string.match(name, '^[^:]+')), name)
  end
end

-- Renews the lease: its deadline is the chat's score in the queue.
local function keep_lease(queue, name, lease_ms)
  redis.call('ZADD', queue, 'XX', integer(now_ms() + tonumber(lease_ms)), name)
end

-- Removes lines from the outbox, the first one among them, and resets the state of the next line.
local function remove_lines(name, state, box, waits, ids)
  redis.call('XDEL', box, unpack(ids))
  redis.call('HDEL', state, 'sending', 'done', 'unsure', 'tries')
  -- The gauge of the oldest waiting line moves to the new first one.
  local first = first_entry(box)
  if first then
    redis.call('ZADD', waits, field(first, 'at') or integer(now_ms()), name)
  else
    redis.call('DEL', box)
    redis.call('ZREM', waits, name)
  end
end

-- A chat with nothing to deliver belongs to no gateway.
local function remove_from_outqueue(queue, leases, state, waits, name, running)
  redis.call('ZREM', queue, name)
  redis.call('HDEL', leases, name)
  redis.call('ZREM', waits, name)
  redis.call('HDEL', state, 'sending', 'done', 'unsure', 'tries')
  if not running then
    -- While a turn runs its streamed message is still needed, by the gateway that leases the chat
    -- next.
    redis.call('HDEL', state, 'bubble', 'meant', 'shown')
  end
end

-- Returns how many ms a platform's pause still lasts, 0 if there is none. Its key holds when it
-- began:
-- if that is still to come, the server's clock fell back, and the key would expire as much later.
local function pause_left(pause)
  if (parse_count(guarded('GET', pause)) or 0) > now_ms() then return 0 end
  -- PTTL is negative for a missing key.
  return math.max(0, redis.call('PTTL', pause))
end

-- Takes one call off each rate, or of none when any is exhausted; returns how many ms to wait.
-- This is GCRA: each key stores the time until which the calls so far are paid for. `rates` is a
-- MessagePack list of {name, us between two calls, calls at once, calls reserved for others}.
local function charge_rates(pause, channel, rates)
  -- A pause of the whole platform comes first.
  local wait, us, paid = pause_left(pause), now_us(), {}
  for _, rate in ipairs(cmsgpack.unpack(rates)) do
    local name, interval, burst, reserve = unpack(rate)
    local paid_until = key('outrate', channel .. ':' .. name)
    local tat = math.max(us, tonumber(redis.call('GET', paid_until) or 0))
    -- `tat`, the theoretical arrival time, is a burst ahead at most. More is from before the server's
    -- clock fell back, and would stop everything until it has caught up.
    if tat > us + interval * burst then tat = us end
    wait = math.max(wait, math.ceil((tat - (burst - 1 - reserve) * interval - us) / 1000))
    paid[paid_until] = tat + interval
  end
  -- All or nothing: nothing is written unless every rate allows the call.
  if wait > 0 then return wait end
  for paid_until, tat in pairs(paid) do
    -- Once the time has passed, a missing key means the same as the stored value.
    redis.call('SET', paid_until, integer(tat), 'PX', integer(math.ceil((tat - us) / 1000)))
  end
  return 0
end
