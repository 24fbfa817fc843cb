-- A stop, and the answer to a question.
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
-- request, sender, digest ('' = not named), line, log_ms.
-- Returns 'done' (now, or by an earlier try of this request), 'unknown' question, 'used' = it was
-- answered already, 'late', 'over' = its turn has ended, 'not_allowed' = this sender was not asked,
-- 'changed' = other arguments are meant, 'held' = a worker holds the turn at this moment.
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
  local seq = add_line(answer.session, answer.log, answer.live, answer.line, answer.log_ms, nil, nil, false)
  add_own_line_fact(answer.session, seq, 'asks', 0)
  resume_parked(answer.session, answer.queue, answer.wake, answer.member, now)
  return 'done'
end
