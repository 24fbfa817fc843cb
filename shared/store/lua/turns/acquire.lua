#!lua flags=allow-oom
-- Leases due members of a queue, the longest due first. For turns: the background comes after the
-- others but gets one in five. When more turns are due than this call takes, people who have more
-- than their share of the running turns come last, and people who were served recently come after
-- those who waited longer. A turn that was begun keeps its place.
-- wanted             how many
-- grace              '1' = leave entries that still have an owner
-- known              newest schema version that the worker knows
-- window             history entries to hand over
-- session_subagents  subagents of a session that run at once (0 = no cap)
-- all_subagents      of all sessions (0 = no cap)
-- person_share       the share of what runs that one person may have while others wait
-- subagent_slots     how many subagents this worker has room for
-- most               how many turns it takes at most, where an eighth of those that are due is more
--                    than wanted
-- returns a list of rows {member, token, waited ms, '1' if its owner was lost, ...}, continued by
--         kind:
--         jobs       crashes
--         turns      n, record, attempt, {history}, memory scope, MEMORY.md, its version, preset,
--                    stop, marks, ms from which the next message is due if it can simply follow
--                    ('' = it cannot), sources that mark the chat, sources that mark its memory,
--                    and from the second attempt on {errors, crashes, ms since the model became
--                    unavailable, {ledger}, {number, record of each message that joined}, {deltas
--                    of the text that stands on screens}, ms since the provider fails it alone}
--                    marks: 'a' waiting messages join the turn at its start, 's' messages that come
--                    while it runs may join it, 'b' no person waits for its first message, 'v'
--                    recordings are answered by a recording, too
--         subagents  record, errors, crashes, attempt, ms since the model became unavailable,
--                    {ledger}, preset, ms since it began, rounds so far, ms since the provider fails
--                    it alone
--         A row {member, '', error} reports an entry whose keys are broken, {'clock', '', ms} that
--         the server's clock fell back.
local queue, leases, wake_list = unpack(KEYS)
local owner, lease_ms, wanted, grace, known, window, session_subagents, all_subagents,
  person_share, subagent_slots, most = unpack(ARGV)
-- The lease counts from `now`, also for members that are claimed late in this call.
lease_ms, wanted, known, window = tonumber(lease_ms), tonumber(wanted), tonumber(known), tonumber(window)
-- Time in us is also the fencing token, in ms the clock of all deadlines.
local us = now_us()
local now = math.floor(us / 1000)
-- The rows of the answer: what was claimed, and what is broken.
local claimed, broken = {}, {}
-- Leases of many members are written together, by `write_leases`, before the queue is read again.
local new_scores, new_leases = {}, {}
-- Grants a lease. The score of a leased member is the deadline of its lease.
local function lease(member, token)
  new_scores[#new_scores + 1] = now + lease_ms
  new_scores[#new_scores + 1] = member
  new_leases[#new_leases + 1] = member
  new_leases[#new_leases + 1] = owner .. ':' .. token
end

-- Writes what `lease` collected; a call for each member would double the cost of a claim.
local function write_leases()
  if #new_leases > 0 then
    redis.call('ZADD', queue, unpack(new_scores))
    redis.call('HSET', leases, unpack(new_leases))
    new_scores, new_leases = {}, {}
  end
end

-- A call hands over what is stored for at most 2 MB, but always one member: the server answers
-- nothing else while it copies. Once a member does not fit any more, the call is `full` and ends.
local CALL_BYTES = 2097152
local call_bytes, full = 0, false
-- Whether a member fits for which this many bytes are stored; called before anything of it is read.
local function fits(...)
  local bytes = 0
  for _, size in ipairs({...}) do
    bytes = bytes + (tonumber(size) or 0)
  end
  full = full or #claimed > 0 and call_bytes + bytes > CALL_BYTES
  call_bytes = call_bytes + bytes
  return not full
end

-- Returns what earlier attempts at turn n left, and since when the turn waits: one that was given
-- back has its old place as score and waits only since it was given back.
local function earlier_attempts(name, session, n, due)
  -- Field `place` is `<place>` at the first attempt, `<place> <given back at>` after a release.
  local fields = redis.call('HMGET', session, 'errors', 'crashes', 'spared', 'away', 'taken', 'place', 'ledger',
    'alone')
  local place, given_back = string.match(fields[6] or '', '^(%d+) (%d+)$')
  if place == integer(due) then
    due = tonumber(given_back)
  end
  local ledger, joined = {}, {}
  -- `ledger` counts bytes; without it there is no ledger to read.
  for i, entry in ipairs(fields[7] and redis.call('XRANGE', key('ledger', name), '-', '+') or {}) do
    ledger[i] = entry[2][2]
  end
  -- Messages that joined stay in the inbox, where their records are read from.
  for _, other in ipairs(parse_joined(fields[5], n)) do
    local entry = redis.call('XRANGE', key('inbox', name), other .. '-0', other .. '-0')[1]
    if entry then
      joined[#joined + 1] = other
      joined[#joined + 1] = field(entry, 'm')
    end
  end
  -- The text of an earlier attempt that people see. A broken record of it must not hold up the turn.
  local shown = guarded('LRANGE', key('live', name), 0, -1) or {}
  for _, delta in ipairs(shown) do
    call_bytes = call_bytes + #delta
  end
  local away = now - (parse_count(fields[4]) or now)
  -- The clock fell back since then: the patience with the model counts from here.
  if away < 0 then
    redis.call('HSET', session, 'away', integer(now))
    away = 0
  end
  local alone = math.max(0, now - (parse_count(fields[8]) or now))
  return {parse_count(fields[1]) or 0, effective_crashes(fields[2], fields[3]), away, ledger, joined, shown, alone},
    due
end
-- Computed once: nearly every turn of a call gets the same token.
local newest_token = integer(us)
-- Claims a turn, or takes a session that has nothing to do out of the queues.
local function claim_turn(member, due, old_lease, from)
  local name = string.sub(member, 6)
  local session = key('session', name)
  -- The second message decides whether something joins this turn, and what follows it.
  local head, second = unpack(redis.call('XRANGE', key('inbox', name), '-', '+', 'COUNT', 2))
  -- Left behind by a withdrawal or an erased session.
  if not head then
    remove_from_queue(queue, member)
    redis.call('HDEL', leases, member)
    -- A ledger without a message would confuse the next turn.
    redis.call('DEL', key('ledger', name))
    return
  end
  -- A record for a newer worker. It moves on by a second: 32 of these would hide everything after
  -- them from this worker.
  if (parse_count(head[2][2]) or 0) > known then
    redis.call('ZADD', from, now + 1000, member)
    return
  end
  local tries, before, stop, cut, scope, preset, busy, history_bytes, ledger_bytes, sources, voice =
    -- tries counts attempts; token is the last fencing token; stop names a turn to be ended; cut
    -- ends every turn before that message; scope, preset and busy are choices of the chat.
    unpack(redis.call('HMGET', session, 'tries', 'token', 'stop', 'cut', 'scope', 'preset', 'busy',
      'history', 'ledger', 'sources', 'voice'))
  if not fits(history_bytes, ledger_bytes) then return end
  -- An entry in the hash of leases whose deadline has passed: its owner died.
  if old_lease then
    count_crash(session)
  end
  tries, before = (parse_count(tries) or 0) + 1, parse_count(before) or 0
  -- The token grows even when the counter or the clock lost its latest writes; a new owner nonce
  -- covers the case that both did.
  local token = before < us and newest_token or integer(before + 1)
  -- The id of the head is `<n>-0`.
  local n = string.sub(head[1], 1, -3)
  local earlier
  -- The first attempt: only its place in the order needs remembering.
  if tries == 1 then
    redis.call('HSET', session, 'token', token, 'tries', 1, 'place', integer(due))
  else
    redis.call('HSET', session, 'token', token, 'tries', tries)
    earlier, due = earlier_attempts(name, session, n, due)
  end
  -- It comes from the background queue; its lease belongs into the queue of turns.
  if from ~= queue then
    redis.call('ZREM', from, member)
  end
  -- Field `b` is the mark with which a message came, `p` whose it is, `d` until when it merges.
  local mark, person, next_mark, next_due = field(head, 'b'), field(head, 'p'), false, ''
  -- A message of the same person can simply follow: commit then need not read the inbox again.
  if second then
    next_mark = field(second, 'b')
    -- One of an album cannot: when it is due depends on parts that come meanwhile.
    local follows = person ~= 'background' and person == field(second, 'p') and not field(second, 'g')
    next_due = follows and (field(second, 'd') or '0') or ''
  end
  -- Flag letters of the answer: 'a' messages wait that join at the start, ...
  local marks = (next_mark == 'steer' or (next_mark and next_mark == mark)) and 'a' or ''
  -- 's' messages that come while the turn runs may join it, ...
  if mark == 'steer' or next_mark == 'steer' or busy == 'steer' then
    marks = marks .. 's'
  end
  -- 'b' no person waits for the answer.
  if person == 'background' then
    marks = marks .. 'b'
  end
  -- 'v' recordings are answered by one, too: a choice of the chat.
  if voice then
    marks = marks .. 'v'
  end
  -- The memory of the chat itself unless a message named another scope.
  scope = scope or 'chat:' .. name
  local memory = redis.call('HMGET', key('memory', scope), 'text', 'v', 'sources')
  call_bytes = call_bytes + #head[2][4] + #(memory[1] or '')
  -- A cut by a newer message counts as a stop of this turn.
  claimed[#claimed + 1] = {
    member, token, now - due, old_lease and '1' or '0',
    -- A record that is missing is as unreadable as a broken one: the worker apologises.
    n, head[2][4] or '', tries, redis.call('LRANGE', key('history', name), -window, -1),
    scope, memory[1] or '', memory[2] or '0', preset or '',
    (parse_count(cut) or 0) > tonumber(n) and n or parse_count(stop) or 0,
    marks, next_due, sources or '', memory[3] or '', earlier,
  }
  lease(member, token)
  -- Followers of the chat show that the turn began. Written by hand: cjson costs more than the
  -- rest.
  local started = '{"type":"turn","turn":' .. n .. ',"state":"started"'
  -- attempt is left out for the first one, as encoders of Python do with defaults.
  redis.call('PUBLISH', key('live', name), started .. (tries > 1 and ',"attempt":' .. tries .. '}' or '}'))
end
-- Subagents for which the caps leave no slot: they are passed over and block nobody.
local passed_over = 0
-- Claims a subagent, unless it ended or its session or the fleet is at its cap.
local function claim_subagent(member, due, old_lease)
  local id = string.sub(member, 5)
  local child = key('child', id)
  local fields = redis.call('HMGET', child, 'parent', 'state', 'v', 'm', 'preset', 'errors', 'away', 'ledger',
    'alone')
  local name, state = fields[1], fields[2]
  -- It ended, or its record has expired.
  if state ~= 'queued' and state ~= 'running' then
    redis.call('ZREM', queue, member)
    redis.call('HDEL', leases, member)
    redis.call('DEL', key('ledger', id))
    return
  end
  -- As in `claim_turn`: for a newer worker.
  if tonumber(fields[3]) > known then
    redis.call('ZADD', queue, now + 1000, member)
    return
  end
  if not fits(fields[8]) then return end
  -- Only the first attempt takes a slot; a retry has one already.
  if state == 'queued' then
    local children, own, all = key('children', name), tonumber(session_subagents), tonumber(all_subagents)
    if (own > 0 and redis.call('ZCOUNT', children, 0, 0) >= own)
        or (all > 0 and redis.call('ZCOUNT', PREFIX .. 'subagents', 0, 0) >= all) then
      -- It becomes due as soon as another one ends. The ten seconds are for a lost wake-up.
      redis.call('ZADD', queue, now + 10000, member)
      passed_over = passed_over + 1
      return
    end
    redis.call('HSET', child, 'state', 'running', 'began', now)
    -- Score 0: it has a slot. A positive score is the time since when it waits for one.
    redis.call('ZADD', children, 0, id)
    redis.call('ZADD', PREFIX .. 'subagents', 0, id)
  end
  if old_lease then
    count_crash(child)
  end
  local token = integer(math.max((tonumber(redis.call('HGET', child, 'token')) or 0) + 1, us))
  redis.call('HSET', child, 'token', token)
  -- Its steps so far, which the next attempt goes on from.
  local ledger = {}
  for i, entry in ipairs(redis.call('XRANGE', key('ledger', id), '-', '+')) do
    ledger[i] = entry[2][2]
  end
  claimed[#claimed + 1] = {
    member, token, now - due, old_lease and '1' or '0',
    fields[4], fields[6] or '0', crashes_of(child), redis.call('HINCRBY', child, 'tries', 1),
    fields[7] and now - tonumber(fields[7]) or 0,
    ledger, fields[5] or '', now - tonumber(redis.call('HGET', child, 'began') or now),
    redis.call('HGET', child, 'rounds') or '0',
    fields[9] and now - tonumber(fields[9]) or 0,
  }
  lease(member, token)
end

-- Claims a plain job. After a crash a job of memory rests first.
local function claim_job(member, due, old_lease)
  local rest_ms = old_lease and count_job_crash(member) or 0
  if rest_ms > 0 then
    redis.call('HDEL', leases, member)
    redis.call('ZADD', queue, now + rest_ms, member)
    return
  end
  local token = integer(us)
  lease(member, token)
  claimed[#claimed + 1] = {
    member, token, now - due, old_lease and '1' or '0', redis.call('GET', key('crashed', member)) or '0',
  }
end
-- This worker asks either for turns, or for jobs and subagents.
local turns = queue == PREFIX .. 'queue:turns'
-- The function that claims a member of this kind.
local function claim_function(member)
  if turns then return claim_turn end
  return is_subagent(member) and claim_subagent or claim_job
end

-- Tries to claim a member; returns whether there is a row for it now.
local function try_claim(member, due, old_lease, from)
  local before = #claimed
  local ok, fault = pcall(claim_function(member), member, due, old_lease, from)
  if not ok then
    -- A broken key of one session must not block the others: it is reported and tried again in a
    -- minute.
    redis.call('ZADD', from, integer(now + 60000), member)
    redis.call('HDEL', leases, member)
    broken[#broken + 1] = {member, '', type(fault) == 'table' and fault.err or tostring(fault)}
  end
  return #claimed > before
end

-- During grace an owner that is late keeps its member for half a lease, counted from its deadline.
local function in_grace(due, old_lease)
  return old_lease and grace == '1' and now - due < lease_ms / 2
end
-- Subagents for which this worker has no slot stay for others; the members after them are read.
subagent_slots = tonumber(subagent_slots)
-- Members that are skipped make the page longer.
local scan = (grace == '1' or subagent_slots < 1) and 1000 or math.max(32, wanted)

-- Claims what it can of `found` (member, score, ...) in order; returns how many subagents it
-- skipped for lack of a slot.
local function claim_members(found)
  local names, left = {}, 0
  for i = 1, #found, 2 do
    names[#names + 1] = found[i]
  end
  -- One call for all: which of them still have a lease entry.
  local owners = #names > 0 and redis.call('HMGET', leases, unpack(names))
  for i, member in ipairs(names) do
    if #claimed == wanted or full then break end
    local due, old_lease = tonumber(found[2 * i]), owners[i]
    if is_subagent(member) and subagent_slots < 1 then
      left = left + 1
    elseif not in_grace(due, old_lease) and try_claim(member, due, old_lease, queue) and is_subagent(member) then
      subagent_slots = subagent_slots - 1
    end
  end
  write_leases()
  return left
end

-- Jobs and subagents are claimed in order of time, in at most eight pages.
local function claim_in_order()
  local from = 0
  for _ = 1, 8 do
    passed_over = 0
    local found = redis.call('ZRANGEBYSCORE', queue, '-inf', now, 'WITHSCORES', 'LIMIT', from, scan)
    local left = claim_members(found)
    if #claimed == wanted or full or passed_over + left == 0 or #found < 2 * scan then return end
    -- What was claimed or put off has left this range; what was skipped is still in front.
    from = from + left
  end
end

-- Claims one turn of the background; returns whether there was one. 32 tries, because some members
-- turn out to be broken or done.
local function claim_background(row)
  for _ = 1, 32 do
    local found = guarded('ZRANGEBYSCORE', BACKGROUND, '-inf', now, 'WITHSCORES', 'LIMIT', 0, 1)
    local member = found and found[1]
    if not member then return false end
    if try_claim(member, tonumber(found[2]), redis.call('HGET', leases, member), BACKGROUND) then
      row.started('background')
      return true
    end
    if full then return false end
  end
  return false
end

-- Claims the next turn in fair order; returns whether there was one.
local function claim_from_row(row)
  while true do
    local member, due, old_lease, fair_key = row.next()
    if not member then return false end
    if try_claim(member, due, old_lease, queue) then
      row.started(fair_key)
      return true
    end
    if full then return false end
  end
end

-- Whether anything in a queue is due now.
local function is_due(name)
  return #(guarded('ZRANGEBYSCORE', name, '-inf', now, 'LIMIT', 0, 1) or {}) > 0
end
-- The background gets one in five of the turns that begin while others wait.
local BACKGROUND_PART = 5
-- Claims due turns; returns whether some are still due.
local function claim_turns()
  local background_due = is_due(BACKGROUND)
  local found = redis.call('ZRANGEBYSCORE', queue, '-inf', now, 'WITHSCORES', 'LIMIT', 0, wanted + 1)
  -- The common case: few are due, all of them fit, and no order needs computing.
  if not background_due and #found <= 2 * wanted then
    claim_members(found)
    return 2 * #claimed < #found
  end
  -- A long queue: take an eighth of it at once, so that claims do not become the bottleneck.
  local due = redis.call('ZCOUNT', queue, '-inf', now)
  wanted = math.max(wanted, math.min(tonumber(most), math.floor(due / 8)))
  local row = fair_row(queue, leases, us / 1000, tonumber(person_share), in_grace, math.max(16, wanted), write_leases)
  -- How many turns began since the last one of the background; kept between calls.
  local since = background_due and tonumber(guarded('ZSCORE', LAST_SERVED, 'background') or 0)
  while #claimed < wanted do
    -- Its part is due, and less than its part runs already.
    if background_due and since >= BACKGROUND_PART - 1 and row.background_below(BACKGROUND_PART)
        and claim_background(row) then
      since = 0
    elseif claim_from_row(row) then
      since = background_due and math.min(since + 1, BACKGROUND_PART - 1)
    -- Nobody else waits: the background may use every free slot.
    elseif background_due and claim_background(row) then
      since = 0
    else
      break
    end
  end
  -- Score below 1000, so that `row.finish` can tell it from a time.
  if background_due then
    guarded('ZADD', LAST_SERVED, since, 'background')
  end
  row.finish()
  write_leases()
  return is_due(queue) or is_due(BACKGROUND)
end
--
-- The work begins here.
local fell_ms = repair_clock(turns and {queue, BACKGROUND} or {queue}, lease_ms, now)
local more_due = false
if turns then more_due = claim_turns() else claim_in_order() end
write_leases()
-- A worker that left everything alone must wake nobody, or workers would wake each other for ever.
if #claimed > 0 and more_due then
  wake(wake_list)
elseif #claimed > 0 and not turns then
  -- Jobs and subagents have different wake lists: wake one worker for each kind that is still due.
  local others = {}
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', queue, '-inf', now, 'LIMIT', 0, 1000)) do
    others[is_subagent(member)] = member
  end
  for _, member in pairs(others) do
    wake_for(member, wake_list)
  end
end
-- Last, because these are no claims.
for _, row in ipairs(broken) do
  claimed[#claimed + 1] = row
end
if fell_ms > 0 then
  claimed[#claimed + 1] = {'clock', '', integer(fell_ms)}
end
return claimed
