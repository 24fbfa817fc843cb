#!lua flags=allow-oom
-- with fair
-- Lease the lowest due members of a queue. Of turns: those in the background come after the others, but get a fifth.
-- When more is due than is taken, whoever has more than a share of what runs comes last, and who was served last behind
-- those who waited longer; a turn that was begun keeps its place.
-- KEYS   1 queue  2 leases  3 wake
-- ARGV   1 owner  2 lease ms  3 how many  4 '1' = leave entries that still have an owner (grace)
--        5 newest schema version known  6 history entries to hand over
--        7 how many subagents of a session run at once  8 how many of all (each: 0 or none = no cap)
--        9 the share of what runs that one person may have while others wait (none = all)
--        10 how many subagents this worker has room for (none = any number)
--        11 how many turns it takes at most, where an eighth of those that are due is more than 3 says (none = 3)
-- returns a list of {member, token, waited ms, '1' if its owner was lost}, for jobs with {.., crashes}, for turns with
--         {.., n, record, attempt, {history}, memory scope, MEMORY.md, its version, preset, stop, marks: 'a' what waits
--         behind it joins it at its start, 's' what comes while it runs may join it, 'b' no person waits for its first
--         message, ms from which the one behind it is due if it can simply follow ('' = it cannot), and, if this is not
--         its first attempt, {errors, crashes, ms since the model went away, {ledger}, {number, record of each message
--         that joined the turn}}} behind it,
--         for subagents with {.., record, errors, crashes, attempt, ms since the model went away, {ledger}, preset, ms
--         since it began, rounds so far},
--         and of {member, '', error} for entries whose keys are broken
local queue, leases = KEYS[1], KEYS[2]
local owner, lease_ms, many = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local grace, known, window = ARGV[4] == '1', tonumber(ARGV[5]), tonumber(ARGV[6])

local us = now_us()
local now = math.floor(us / 1000)
local taken = {}

-- Leases are written for many members together: by `write_leases`, before the queue is looked at again.
local again, held = {}, {}
local function lease(member, token)
  again[#again + 1] = now + lease_ms
  again[#again + 1] = member
  held[#held + 1] = member
  held[#held + 1] = owner .. ':' .. token
end

local function write_leases()
  if #held > 0 then
    redis.call('ZADD', queue, unpack(again))
    redis.call('HSET', leases, unpack(held))
    again, held = {}, {}
  end
end

-- What earlier attempts at turn n left, and since when it waits: one that was given back has its old place.
local function left_by_earlier(name, session, n, due)
  local told = redis.call('HMGET', session, 'errors', 'crashes', 'spared', 'away', 'taken', 'place', 'ledger')
  local place, back = string.match(told[6] or '', '^(%d+) (%d+)$')
  if place == integer(due) then
    due = tonumber(back)
  end
  local ledger, joined = {}, {}
  for i, entry in ipairs(told[7] and redis.call('XRANGE', key('ledger', name), '-', '+') or {}) do
    ledger[i] = entry[2][2]
  end
  for _, other in ipairs(taken_told(told[5], n)) do
    local entry = redis.call('XRANGE', key('inbox', name), other .. '-0', other .. '-0')[1]
    if entry then
      joined[#joined + 1] = other
      joined[#joined + 1] = field(entry, 'm')
    end
  end
  local away = told[4] and now - tonumber(told[4]) or 0
  return {told[1] or '0', crashes_told(told[2], told[3]), away, ledger, joined}, due
end

local newest_token = integer(us)
local function take_turn(member, due, lost, from)
  local name = string.sub(member, 6)
  local session = key('session', name)
  local head, second = unpack(redis.call('XRANGE', key('inbox', name), '-', '+', 'COUNT', 2))
  if not head then
    leave_queue(queue, member)
    redis.call('HDEL', leases, member)
    redis.call('DEL', key('ledger', name))
    return
  end
  if tonumber(head[2][2]) > known then
    -- For a newer worker. Moved on, or 32 of these would hide everybody behind them.
    redis.call('ZADD', from, now + 1000, member)
    return
  end
  if lost then
    count_crash(session, lost)
  end
  local tries, before, stop, cut, scope, preset, busy =
    unpack(redis.call('HMGET', session, 'tries', 'token', 'stop', 'cut', 'scope', 'preset', 'busy'))
  tries, before = (tonumber(tries) or 0) + 1, tonumber(before) or 0
  -- Grows also when the counter or the clock lost its tail; the owner's nonce covers both at once.
  local token = before < us and newest_token or integer(before + 1)
  local n = string.sub(head[1], 1, -3)
  local earlier
  if tries == 1 then
    redis.call('HSET', session, 'token', token, 'tries', 1, 'place', integer(due))
  else
    redis.call('HSET', session, 'token', token, 'tries', tries)
    earlier, due = left_by_earlier(name, session, n, due)
  end
  if from ~= queue then
    redis.call('ZREM', from, member)
  end
  local mark, person, next_mark, next_due = field(head, 'b'), field(head, 'p'), false, ''
  if second then
    next_mark = field(second, 'b')
    next_due = person ~= 'background' and person == field(second, 'p') and (field(second, 'd') or '0') or ''
  end
  local marks = (next_mark == 'steer' or (next_mark and next_mark == mark)) and 'a' or ''
  if mark == 'steer' or next_mark == 'steer' or busy == 'steer' then
    marks = marks .. 's'
  end
  if person == 'background' then
    marks = marks .. 'b'
  end
  scope = scope or 'chat:' .. name
  local memory = redis.call('HMGET', key('memory', scope), 'text', 'v')
  taken[#taken + 1] = {
    member, token, now - due, lost and '1' or '0',
    n, head[2][4], tries, redis.call('LRANGE', key('history', name), -window, -1),
    scope, memory[1] or '', memory[2] or '0', preset or '', tonumber(cut or 0) > tonumber(n) and n or stop or '0',
    marks, next_due, earlier,
  }
  lease(member, token)
  local started = '{"type":"turn","turn":' .. n .. ',"state":"started"'
  redis.call('PUBLISH', key('live', name), started .. (tries > 1 and ',"attempt":' .. tries .. '}' or '}'))
end

-- One that finds no place is passed over: it stands in nobody's way.
local passed = 0
local function take_sub(member, due, lost)
  local id = string.sub(member, 5)
  local child = key('child', id)
  local told = redis.call('HMGET', child, 'parent', 'state', 'v', 'm', 'preset', 'errors', 'away')
  local name, state = told[1], told[2]
  if state ~= 'queued' and state ~= 'running' then
    redis.call('ZREM', queue, member)
    redis.call('HDEL', leases, member)
    redis.call('DEL', key('ledger', id))
    return
  end
  if tonumber(told[3]) > known then
    redis.call('ZADD', queue, now + 1000, member)
    return
  end
  if state == 'queued' then
    local children, own, all = key('children', name), tonumber(ARGV[7] or 0), tonumber(ARGV[8] or 0)
    if (own > 0 and redis.call('ZCOUNT', children, 0, 0) >= own)
        or (all > 0 and redis.call('ZCOUNT', 'shoal:subagents', 0, 0) >= all) then
      -- Looked at again when another one ends; the time is for the case that nobody could say so.
      redis.call('ZADD', queue, now + 10000, member)
      passed = passed + 1
      return
    end
    redis.call('HSET', child, 'state', 'running', 'began', now)
    redis.call('ZADD', children, 0, id)
    redis.call('ZADD', 'shoal:subagents', 0, id)
  end
  if lost then
    count_crash(child, lost)
  end
  local token = integer(math.max((tonumber(redis.call('HGET', child, 'token')) or 0) + 1, us))
  redis.call('HSET', child, 'token', token)
  local ledger = {}
  for i, entry in ipairs(redis.call('XRANGE', key('ledger', id), '-', '+')) do
    ledger[i] = entry[2][2]
  end
  taken[#taken + 1] = {
    member, token, now - due, lost and '1' or '0',
    told[4], told[6] or '0', crashes_of(child), redis.call('HINCRBY', child, 'tries', 1),
    told[7] and now - tonumber(told[7]) or 0,
    ledger, told[5] or '', now - tonumber(redis.call('HGET', child, 'began') or now),
    redis.call('HGET', child, 'rounds') or '0',
  }
  lease(member, token)
end

local function take_job(member, due, lost)
  local rest = lost and job_crashed(member) or 0
  if rest > 0 then
    redis.call('HDEL', leases, member)
    redis.call('ZADD', queue, now + rest, member)
    return
  end
  local token = integer(us)
  lease(member, token)
  taken[#taken + 1] = {member, token, now - due, lost and '1' or '0', redis.call('GET', key('crashed', member)) or '0'}
end

local turns = queue == 'shoal:queue:turns'
local function take(member)
  if turns then return take_turn end
  return is_sub(member) and take_sub or take_job
end

-- Tries to take a member; whether there is a row for it now.
local function try(member, due, lost, from)
  local before = #taken
  local ok, fault = pcall(take(member), member, due, lost, from)
  if not ok then
    -- One session with a broken key must not stand in everybody's way.
    redis.call('ZADD', from, now + 60000, member)
    redis.call('HDEL', leases, member)
    taken[#taken + 1] = {member, '', type(fault) == 'table' and fault.err or tostring(fault)}
  end
  return #taken > before
end

-- In grace an owner that is late gets half a lease more, counted from the end of its own.
local function left_alone(due, lost)
  return lost and grace and now - due < lease_ms / 2
end

-- Subagents that this worker has no room for stay where they are, for others, and those behind them are looked at.
local room = tonumber(ARGV[10] or many)
local scan = (grace or room < 1) and 1000 or math.max(32, many)

-- Takes what it can of found members with their times, in their order; how many it had no room for.
local function take_these(found)
  local names, left = {}, 0
  for i = 1, #found, 2 do
    names[#names + 1] = found[i]
  end
  local owners = #names > 0 and redis.call('HMGET', leases, unpack(names))
  for i, member in ipairs(names) do
    if #taken == many then break end
    local due, lost = tonumber(found[2 * i]), owners[i]
    if is_sub(member) and room < 1 then
      left = left + 1
    elseif not left_alone(due, lost) and try(member, due, lost, queue) and is_sub(member) then
      room = room - 1
    end
  end
  write_leases()
  return left
end

local function take_in_order()
  local from = 0
  for _ = 1, 8 do
    passed = 0
    local found = redis.call('ZRANGEBYSCORE', queue, '-inf', now, 'WITHSCORES', 'LIMIT', from, scan)
    local left = take_these(found)
    if #taken == many or passed + left == 0 or #found < 2 * scan then return end
    from = from + left
  end
end

local function take_from_background(row)
  for _ = 1, 32 do
    local found = redis.call('ZRANGEBYSCORE', BACKGROUND, '-inf', now, 'WITHSCORES', 'LIMIT', 0, 1)
    local member = found[1]
    if not member then return false end
    if try(member, tonumber(found[2]), redis.call('HGET', leases, member), BACKGROUND) then
      row.begun('background')
      return true
    end
  end
  return false
end

local function take_from_row(row)
  while true do
    local member, due, lost, whose = row.next()
    if not member then return false end
    if try(member, due, lost, queue) then
      row.begun(whose)
      return true
    end
  end
end

local function is_due(name)
  return #redis.call('ZRANGEBYSCORE', name, '-inf', now, 'LIMIT', 0, 1) > 0
end

local FIFTH = 5
-- Takes due turns; whether some are still due.
local function take_turns()
  local behind = is_due(BACKGROUND)
  local found = redis.call('ZRANGEBYSCORE', queue, '-inf', now, 'WITHSCORES', 'LIMIT', 0, many + 1)
  if not behind and #found <= 2 * many then
    take_these(found)
    return 2 * #taken < #found
  end
  local due = redis.call('ZCOUNT', queue, '-inf', now)
  many = math.max(many, math.min(tonumber(ARGV[11] or many), math.floor(due / 8)))
  local row = fair_row(queue, leases, us / 1000, tonumber(ARGV[9] or 1), left_alone, math.max(16, many), write_leases)
  local since = behind and tonumber(redis.call('ZSCORE', SERVED, 'background') or 0)
  while #taken < many do
    if behind and since >= FIFTH - 1 and row.background_below(FIFTH) and take_from_background(row) then
      since = 0
    elseif take_from_row(row) then
      since = behind and math.min(since + 1, FIFTH - 1)
    elseif behind and take_from_background(row) then
      since = 0
    else
      break
    end
  end
  if behind then
    redis.call('ZADD', SERVED, since, 'background')
  end
  row.leave()
  write_leases()
  return is_due(queue) or is_due(BACKGROUND)
end

local rest = false
if turns then rest = take_turns() else take_in_order() end
write_leases()
-- A worker that left everything alone wakes nobody, or it would wake itself without end.
if #taken > 0 and rest then
  wake(KEYS[3])
elseif #taken > 0 and not turns then
  local others = {}
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', queue, '-inf', now, 'LIMIT', 0, 1000)) do
    others[is_sub(member)] = member
  end
  for _, member in pairs(others) do
    wake_for(member, KEYS[3])
  end
end
return taken
