-- A stop, the answer to a question, and yeses that stand.
--
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

-- The standing approvals of a chat: a field of the session, a MessagePack list of maps of the shape
-- of StandingApproval in shared/messages/standing.py. The oldest go beyond this number.
local STANDING_MAX = 32

-- Keeps the yes of a sender to a question for later calls of the chat, or without one takes back the
-- standing approval `id`, with id 'all' every one.
local function change_standing(session, id, question, sender, now)
  local packed, kept = redis.call('HGET', session, 'standing'), {}
  for _, one in ipairs(packed and cmsgpack.unpack(packed) or {}) do
    local goes = id == 'all' or one.id == id
    if question then goes = one.covers == question.standing and one.by == sender end
    if not goes then table.insert(kept, one) end
  end
  if question then
    table.insert(kept, {
      id = question.id, covers = question.standing, tool = question.tool, by = sender, at = now,
      arguments = string.sub(question.standing, 1, 5) == 'call ' and question.arguments or '',
    })
    if #kept > STANDING_MAX then table.remove(kept, 1) end
  end
  if #kept == 0 then
    redis.call('HDEL', session, 'standing')
  else
    redis.call('HSET', session, 'standing', cmsgpack.pack(kept))
  end
end

-- Makes a parked turn due, whose question was answered. Somebody waits for it now, even if it was
-- background work. It returns to the place in the queue that it had when it was first claimed.
local function resume_parked(session, queue, wake_list, member, now)
  local place = tonumber(string.match(redis.call('HGET', session, 'place') or '', '^%d+'))
  local fair_key = guarded('HGET', FAIR_KEYS, member)
  guarded('ZREM', BACKGROUND, member)
  redis.call('ZADD', queue, integer(math.min(now, place or now)), member)
  if place then
    -- `<place> <now>`: the wait that is reported for it counts from here.
    redis.call('HSET', session, 'place', integer(place) .. ' ' .. integer(now))
  end
  if fair_key == 'background' then
    -- Background work that a person answered runs as the chat's own.
    set_fair_key(member, nil)
  elseif fair_key and place and string.sub(fair_key, 1, 1) ~= '+' then
    -- '+' exempts it from fair sharing: it was begun already.
    set_fair_key(member, '+' .. fair_key)
  end
  wake(wake_list)
end

-- Records the answer to the question that a parked turn waits for as an entry of its ledger, where
-- whichever worker claims the turn finds it. `answer` has the member, the keys, and id, yes ('1'),
-- request, sender, digest ('' = not named), line, log_ms, always ('1' = the yes is for later calls,
-- too).
-- Returns 'done' (now, or by an earlier try of this request), 'unknown' question, 'used' = it was
-- answered already, 'late', 'over' = its turn has ended, 'not_allowed' = this sender was not asked,
-- 'changed' = other arguments are meant, 'held' = a worker holds the turn at this moment,
-- 'not_standing' = a yes to this question can be given for this call alone.
local function resolve_approval(answer)
  local now = now_ms()
  -- Field `asked`: `<state> <id> <expires ms> <step> <turn> <request> <tool>`, state open, yes or
  -- no; calls or done where a program is asked.
  local fields = redis.call('HGET', answer.session, 'asked') or ''
  local state, id, expires, step, n, request, tool = string.match(fields, '^(%a+) (%x+) (%d+) (%d+) (%d+) (%S+) (.*)$')
  if id ~= answer.id then return 'unknown' end
  -- The same request again means that the first reply was lost.
  if state ~= 'open' then return request == answer.request and 'done' or 'used' end
  if now >= tonumber(expires) then return 'late' end
  -- A turn that was stopped, or cut by a newer message, will never read an answer.
  local stop = redis.call('HMGET', answer.session, 'stop', 'cut')
  local ended = stop[1] == n or tonumber(stop[2] or 0) > tonumber(n)
  -- The question must still be the newest step; otherwise the turn has moved on.
  local last = redis.call('XREVRANGE', answer.ledger, '+', '-', 'COUNT', 1)[1]
  if ended or not last or last[1] ~= step .. '-0' then return 'over' end
  local question = cmsgpack.unpack(field(last, 'm'))
  if question.t ~= 'approval' or question.id ~= answer.id then return 'over' end
  -- An empty list of people lets everybody who may write in the chat answer.
  local allowed = #(question.people or {}) == 0
  for _, one in ipairs(question.people or {}) do
    allowed = allowed or one == answer.sender
  end
  if not allowed then return 'not_allowed' end
  -- A page or a button names the arguments it showed; they must be those that would run.
  if answer.digest ~= '' and answer.digest ~= question.digest then return 'changed' end
  local always = answer.always == '1' and answer.yes == '1'
  if always and (question.standing or '') == '' then return 'not_standing' end
  -- A lease means that a worker reads the ledger now: appending to it would open a hole.
  if redis.call('HGET', answer.leases, answer.member) then return 'held' end
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
  if always then change_standing(answer.session, nil, question, answer.sender, now) end
  local seq = add_line(answer.session, answer.log, answer.live, answer.line, answer.log_ms, nil, nil, false)
  add_own_line_fact(answer.session, seq, 'asks', 0)
  resume_parked(answer.session, answer.queue, answer.wake, answer.member, now)
  return 'done'
end
