-- Queues: who is due, and who is woken.
--
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
local SUBAGENT_WAKE = PREFIX .. 'wake:subagents'

-- Tells a subagent from a turn or a plain job by the prefix of its queue member.
local function is_subagent(member)
  return string.sub(member, 1, 4) == 'sub:'
end

-- Wakes a worker that can run this member; `list` is the wake list of its queue.
local function wake_for(member, list)
  wake(is_subagent(member) and SUBAGENT_WAKE or list)
end

-- A session waits in one of two queues: BACKGROUND when no person waits for its next answer, else
-- the queue of turns. A running turn is always in the queue of turns, and so is its only lease.
-- FAIR_KEYS names for a member whose turn it is: a person's hash, or 'background'. A member that
-- is missing there counts as its chat's own. A '+' in front: the turn was given back and keeps its
-- place in the order.
-- LAST_SERVED holds when each person's turn last began while others waited, and under 'background'
-- how many turns began since the last one of the background.
local BACKGROUND, FAIR_KEYS, LAST_SERVED = PREFIX .. 'queue:background', PREFIX .. 'shares', PREFIX .. 'served'

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

-- Returns when the turn of a message may begin: now, or at the end of the window of `merge`, which
-- is
-- field `d`. Field `w` is the length of that window: a message that is not in it yet was stored
-- before the clock fell back.
local function due_of(head, now)
  local ends, window = parse_count(field(head, 'd')) or 0, parse_count(field(head, 'w'))
  if window and now < ends - window then return now end
  return math.max(now, ends)
end

-- Some platforms send each file of one message, an album, as a message of its own. The ZSET
-- `shoal:album:<session>` says until when, in ms, the turn of an album waits: `<album>` for a part
-- of which nothing is known yet, `<album>\n<dedupe id>` for one that a gateway is fetching.
local function album_part(album, dedupe_id)
  return album .. '\n' .. dedupe_id
end

-- Returns when the turn of an album may begin.
local function album_due(album_parts, album, now)
  local due, scores = now, guarded('ZRANGE', album_parts, 0, -1, 'WITHSCORES') or {}
  for i = 1, #scores, 2 do
    local one, ends = scores[i], tonumber(scores[i + 1])
    -- What lies further ahead than any part may take is from before the clock fell back.
    if (one == album or string.find(one, album .. '\n', 1, true) == 1) and ends < now + 60000 then
      due = math.max(due, ends)
    end
  end
  return due
end

-- Moves the turn at the head of a session to `due`, if it answers this album and has not begun.
local function move_album(queue, leases, inbox, session, member, album, due)
  local head = redis.call('XRANGE', inbox, '-', '+', 'COUNT', 1)[1]
  if head and field(head, 'g') == album and not redis.call('HGET', leases, member)
      and not redis.call('HGET', session, 'tries') then
    guarded('ZADD', queue, 'XX', integer(due), member)
  end
end

-- Returns whether another part of an album waits or is being answered.
local function album_waits(inbox, album)
  for _, entry in ipairs(redis.call('XRANGE', inbox, '-', '+')) do
    if field(entry, 'g') == album then return true end
  end
  return false
end

-- Queues a session whose head has just been answered or withdrawn.
local function requeue_next(queue, wake_list, session, member, head, now)
  local due, album = due_of(head, now), field(head, 'g')
  -- Field `g` names the album that the message is a part of: others of it may be on their way.
  if album then
    due = math.max(due, album_due(key('album', key_id(session)), album, now))
  end
  requeue(queue, wake_list, session, member, head, due, now)
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
