-- Prepended to every script. Times are the server's own.
local function now_us()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

local function now_ms()
  return math.floor(now_us() / 1000)
end

local function key(kind, session)
  return 'shoal:' .. kind .. ':' .. session
end

-- Big numbers would print as 1.79e+15 otherwise.
local function integer(number)
  return string.format('%d', number)
end

-- The fence: whoever writes must hold the lease, the same acquisition of it.
local function holds(leases, member, lease)
  return redis.call('HGET', leases, member) == lease
end

-- One token wakes one idle worker; more would wake a herd.
local function wake(list)
  if redis.call('LLEN', list) == 0 then
    redis.call('LPUSH', list, '1')
  end
end

-- Of subagents on a list of their own: a worker that has no room for one does not listen to it.
local SUBAGENT_WAKE = 'shoal:wake:subagents'

local function is_sub(member)
  return string.sub(member, 1, 4) == 'sub:'
end

local function wake_for(member, list)
  wake(is_sub(member) and SUBAGENT_WAKE or list)
end

-- One field of a stream's entry.
local function field(entry, name)
  for i = 1, #entry[2], 2 do
    if entry[2][i] == name then return entry[2][i + 1] end
  end
end

-- The owner of a turn or subagent has died. What it did in a process of its own did not kill it, most likely: three such
-- deaths count as one.
local function count_crash(record, lease)
  local apart = redis.call('HGET', record, 'apart') == lease
  redis.call('HINCRBY', record, apart and 'spared' or 'crashes', 1)
end

local function crashes_told(crashes, spared)
  if not crashes and not spared then return '0' end
  return integer((tonumber(crashes) or 0) + math.floor((tonumber(spared) or 0) / 3))
end

local function crashes_of(record)
  local told = redis.call('HMGET', record, 'crashes', 'spared')
  return crashes_told(told[1], told[2])
end

-- The numbers of the messages that joined turn n, in order, by field `taken` of its session. They lie in the inbox until
-- the turn ends.
local function taken_told(taken, n)
  local numbers = {}
  if not taken then return numbers end
  for number in string.gmatch(taken, '%d+') do
    numbers[#numbers + 1] = number
  end
  return table.remove(numbers, 1) == n and numbers or {}
end

local function taken_by(session, n)
  return taken_told(redis.call('HGET', session, 'taken'), n)
end

-- A session waits in one of two queues: of turns, or of those that no person waits for. What runs is in the first, and
-- its lease is the only one there is. SHARES says of members whose turn they are: of a person (field `p` of the message
-- at the head), or `background`; of one that is not there, its chat's own. A '+' before it: given back, it keeps its
-- place.
-- SERVED: when each person's turn last began while others waited, and how many began since one of the background.
local BACKGROUND, SHARES, SERVED = 'shoal:queue:background', 'shoal:shares', 'shoal:served'

local function share(member, whose)
  if whose and whose ~= '' then
    redis.call('HSET', SHARES, member, whose)
  else
    redis.call('HDEL', SHARES, member)
  end
end

-- Takes a session that has nothing to do out of its queue.
local function leave_queue(queue, member)
  redis.call('ZREM', queue, member)
  redis.call('ZREM', BACKGROUND, member)
  redis.call('HDEL', SHARES, member)
end

-- Puts a session that does not run where its head wants it. A person who waits behind a tick waits for that, too.
local function line_up(queue, waked, session, member, head, due, now)
  local whose = field(head, 'p')
  if whose ~= 'background' then
    redis.call('ZADD', queue, due, member)
    redis.call('ZREM', BACKGROUND, member)
    share(member, whose)
  elseif tonumber(redis.call('HGET', session, 'person') or 0) > tonumber(string.match(head[1], '%d+')) then
    redis.call('ZADD', queue, integer(due), member)
    redis.call('ZREM', BACKGROUND, member)
    share(member, nil)
  else
    redis.call('ZADD', BACKGROUND, integer(due), member)
    redis.call('ZREM', queue, member)
    share(member, whose)
  end
  if due <= now then
    wake(waked)
  end
end

-- The same when the head before this one was answered or withdrawn; a burst that is merged has its window.
local function line_up_next(queue, waked, session, member, head, now)
  line_up(queue, waked, session, member, head, math.max(now, tonumber(field(head, 'd') or 0)), now)
end

-- Makes a session due to which message n has come, behind others or not. What runs or waits stays where it is, but that
-- a message that a person waits for brings it out of the background.
local function queue_up(queue, waked, session, member, n, whose, behind, due, now)
  if whose == 'background' then
    if not redis.call('ZSCORE', queue, member)
        and redis.call('ZADD', BACKGROUND, 'NX', integer(due), member) == 1 then
      share(member, whose)
      if due <= now then
        wake(waked)
      end
    end
    return
  end
  local since = false
  if behind then
    redis.call('HSET', session, 'person', n)
    since = redis.call('ZSCORE', BACKGROUND, member)
  end
  if since then
    redis.call('ZREM', BACKGROUND, member)
    due = math.max(now, tonumber(since))
  end
  if redis.call('ZADD', queue, 'NX', integer(due), member) == 1 then
    share(member, whose)
    if due <= now then
      wake(waked)
    end
  end
end

-- Of chats on a platform the lines are delivered, and leave their outbox by that; of these channels people read the log.
local READ = {web = true, api = true, cli = true, system = true}
local OUTBOX_CAP = 100

-- The channel of a session whose lines are delivered; nil of another one's.
local function delivered(name)
  local channel = string.sub(name, 1, string.find(name, ':', 1, true) - 1)
  return not READ[channel] and channel or nil
end

-- Makes a chat due for delivery, if it is not. The gateways of its channel hear of it.
local function attend(name, channel, now, keep_ms)
  local queue = key('outqueue', channel)
  if redis.call('ZADD', queue, 'NX', integer(now), name) == 1 then
    redis.call('ZADD', 'shoal:outboxes', integer(now), channel)
    redis.call('PUBLISH', key('live', channel), name)
  end
  redis.call('PEXPIRE', 'shoal:outboxes', keep_ms)
  redis.call('PEXPIRE', queue, keep_ms)
end

-- Makes dead letters of lines. `unsure` counts the times that a post of the first may be there all the same.
local function bury(name, entries, reason, why, unsure)
  for i, entry in ipairs(entries) do
    redis.call('XADD', 'shoal:dead', 'MAXLEN', '~', 10000, '*', 'member', 'out:' .. name,
      'n', string.match(entry[1], '%d+'), 'reason', reason, 'why', why, 'unsure', i == 1 and unsure or '0',
      'm', field(entry, 'm'))
  end
  redis.call('XTRIM', 'shoal:dead', 'MINID', integer(now_ms() - 30 * 86400000))
end

-- A line that is to be delivered. Over the cap the oldest is given up, but for the first: that may be on its way.
local function add_delivery(name, channel, log, live, seq, line, keep_ms)
  local now, waits = now_ms(), key('outwaits', channel)
  redis.call('XADD', log, seq .. '-0', 'm', line, 'at', integer(now))
  if redis.call('XLEN', log) > OUTBOX_CAP then
    local oldest = redis.call('XRANGE', log, '-', '+', 'COUNT', 2)[2]
    bury(name, {oldest}, 'outbox_full', '', '0')
    redis.call('XDEL', log, oldest[1])
    redis.call('HINCRBY', key('out', name), 'full', 1)
    redis.call('PEXPIRE', key('out', name), keep_ms)
  end
  redis.call('PEXPIRE', log, keep_ms)
  redis.call('ZADD', waits, 'NX', integer(now), name)
  redis.call('PEXPIRE', waits, keep_ms)
  attend(name, channel, now, keep_ms)
  redis.call('PUBLISH', live, seq .. ' ' .. line)
end

-- Gives a line the next number of its chat's log, keeps it, and shows it. With `seq` that is its number, and the caller
-- writes it down; with `kept` the log was given its time lately.
local function add_line(session, log, live, line, keep_ms, seq, kept)
  seq = seq or redis.call('HINCRBY', session, 'log', 1)
  local name = string.sub(log, 14)
  local channel = delivered(name)
  if channel then
    add_delivery(name, channel, log, live, seq, line, keep_ms)
    return seq
  end
  local number = integer(seq)
  redis.call('XADD', log, number .. '-0', 'm', line)
  if seq > 500 then
    local unread = seq - tonumber(redis.call('HGET', session, 'acked') or 0)
    redis.call('XTRIM', log, 'MAXLEN', math.min(2000, math.max(500, unread)))
  end
  if not kept then
    redis.call('PEXPIRE', log, keep_ms)
  end
  redis.call('PUBLISH', live, number .. ' ' .. line)
  return seq
end

-- Appends ARGV[first] to ARGV[last] to a conversation of so many bytes, and drops its oldest entries over the cap; how
-- many it has now, how many it dropped, and its bytes, which the caller writes down.
local function add_history(session, history, first, last, cap, size)
  local length, dropped = 0, 0
  for from = first, last, 1000 do
    length = redis.call('RPUSH', history, unpack(ARGV, from, math.min(last, from + 999)))
  end
  for i = first, last do
    size = size + #ARGV[i]
  end
  while size > cap and length > 1 do
    size = size - #redis.call('LPOP', history)
    length, dropped = length - 1, dropped + 1
  end
  if dropped > 0 then
    redis.call('HINCRBY', session, 'mark', dropped)
  end
  return length, dropped, size
end

-- A new text of a MEMORY.md. Its version is a time, so that one that was forgotten does not come back under an old number.
local function set_memory(memory, text)
  local version = integer(math.max(now_us(), (tonumber(redis.call('HGET', memory, 'v')) or 0) + 1))
  redis.call('HSET', memory, 'text', text, 'v', version)
  return version
end

-- Counts that a job took its worker down, or was beside one that did; how many ms it rests now. A job of memory can wait.
local RESTING = {consolidate = true, idle = true, archive = true, rework = true}
local function job_crashed(job)
  local crashes = key('crashed', job)
  redis.call('INCR', crashes)
  redis.call('PEXPIRE', crashes, 86400000)
  return RESTING[string.match(job, '^(%a+):')] and 60000 or 0
end

-- What was answered to a message id, on this day or the days before.
local function seen_before(prefix, days, id, now)
  local today = math.floor(now / 86400000)
  for day = today, today - days, -1 do
    local first = redis.call('HGET', prefix .. day, id)
    if first then return first end
  end
end

local function note_seen(prefix, days, id, now, answer)
  local today = prefix .. math.floor(now / 86400000)
  redis.call('HSET', today, id, answer)
  if redis.call('HLEN', today) == 1 then
    redis.call('EXPIRE', today, (days + 1) * 86400)
  end
end

-- Asks for the end of the turn at the head, running or waiting, and of no other; its number, or nil.
local function stop_head(session, inbox, queue, leases, waked, member, control)
  local head = redis.call('XRANGE', inbox, '-', '+', 'COUNT', 1)[1]
  if not head then return end
  local n = string.match(head[1], '%d+')
  redis.call('HSET', session, 'stop', n)
  if not redis.call('HGET', leases, member) then
    -- It waits, perhaps for a model that is away: whoever takes it now ends it.
    redis.call('ZADD', queue, redis.call('ZREM', BACKGROUND, member) == 1 and 'NX' or 'XX', now_ms(), member)
    redis.call('HDEL', SHARES, member)
    wake(waked)
  end
  redis.call('PUBLISH', control, member .. ' ' .. n)
  return n
end

-- The answer to the question that a parked turn waits for: an entry of its ledger, so that whoever takes the turn finds it
-- there. `ask` has the member, the keys, and id, yes ('1'), request, sender, digest ('' = not named), line, log_ms.
-- 1 it counts, 0 it does by an earlier try of this request, -1 no such question, -2 it was answered, -3 too late, -4 its
-- turn is over, -5 this sender is not asked, -6 other arguments are meant, -7 a worker looks at it just now
local function settle_question(ask)
  local now = now_ms()
  local told = redis.call('HGET', ask.session, 'asked') or ''
  local state, id, expires, step, n, request, tool = string.match(told, '^(%a+) (%x+) (%d+) (%d+) (%d+) (%S+) (.*)$')
  if id ~= ask.id then return -1 end
  if state ~= 'open' then return request == ask.request and 0 or -2 end
  if now >= tonumber(expires) then return -3 end
  local stop = redis.call('HMGET', ask.session, 'stop', 'cut')
  local ended = stop[1] == n or tonumber(stop[2] or 0) > tonumber(n)
  local last = redis.call('XREVRANGE', ask.ledger, '+', '-', 'COUNT', 1)[1]
  if ended or not last or last[1] ~= step .. '-0' then return -4 end
  local question = cmsgpack.unpack(field(last, 'm'))
  if question.t ~= 'approval' or question.id ~= ask.id then return -4 end
  local allowed = #(question.people or {}) == 0
  for _, one in ipairs(question.people or {}) do
    allowed = allowed or one == ask.sender
  end
  if not allowed then return -5 end
  if ask.digest ~= '' and ask.digest ~= question.digest then return -6 end
  if redis.call('HGET', ask.leases, ask.member) then return -7 end

  local record = cmsgpack.pack({
    t = 'decision', call_id = question.call_id, turn = tonumber(n), yes = ask.yes == '1', by = ask.sender, at = now,
  })
  redis.call('XADD', ask.ledger, integer(tonumber(step) + 1) .. '-0', 'm', record)
  redis.call('HINCRBY', ask.session, 'ledger', #record)
  redis.call('HSET', ask.session, 'asked',
    table.concat({ask.yes == '1' and 'yes' or 'no', id, expires, step, n, ask.request, tool}, ' '))
  add_line(ask.session, ask.log, ask.live, ask.line, ask.log_ms)
  -- A person waits for it now, whoever's turn it was; it has the place that it had when it was begun.
  local place = tonumber(string.match(redis.call('HGET', ask.session, 'place') or '', '^%d+'))
  local whose = redis.call('HGET', SHARES, ask.member)
  redis.call('ZREM', BACKGROUND, ask.member)
  redis.call('ZADD', ask.queue, integer(math.min(now, place or now)), ask.member)
  if place then
    redis.call('HSET', ask.session, 'place', integer(place) .. ' ' .. integer(now))
  end
  if whose == 'background' then
    share(ask.member, nil)
  elseif whose and place and string.sub(whose, 1, 1) ~= '+' then
    share(ask.member, '+' .. whose)
  end
  wake(ask.wake)
  return 1
end

-- Puts a chat at the head of its person's list. Its first title stays; '' is none.
local function list_chat(session, chats, chat, title, keep_ms, now)
  if title ~= '' then
    redis.call('HSETNX', session, 'title', title)
  end
  redis.call('ZADD', chats, now, chat)
  redis.call('ZREMRANGEBYRANK', chats, 0, -1001)
  redis.call('PEXPIRE', chats, keep_ms)
end

-- Takes a schedule out; whether it was there. With the last one goes all that is known of them.
local function drop_schedule(name, id)
  local all = key('cron', name)
  redis.call('ZREM', 'shoal:cron', id .. ':' .. name)
  local there = redis.call('HDEL', all, id) == 1
  redis.call('HDEL', all, id .. ':tick', id .. ':runs', id .. ':missed', id .. ':last')
  for _, one in ipairs(redis.call('HKEYS', all)) do
    if not string.find(one, ':') then return there end
  end
  redis.call('DEL', all)
  return there
end

-- Takes all of a chat's schedules out.
local function drop_schedules(name)
  for _, one in ipairs(redis.call('HKEYS', key('cron', name))) do
    if not string.find(one, ':') then
      redis.call('ZREM', 'shoal:cron', one .. ':' .. name)
    end
  end
  return redis.call('DEL', key('cron', name))
end

-- Lets a chat's schedules rest, after `ms` of which they are over, or go on (''); how many.
local function rest_schedules(name, ms)
  local all = key('cron', name)
  local rests = redis.call('HGET', all, ':paused')
  if (ms == '') == not rests then return 0 end
  local many = 0
  local over = ms ~= '' and integer(now_ms() + tonumber(ms))
  for _, id in ipairs(redis.call('HKEYS', all)) do
    if not string.find(id, ':') then
      many = many + 1
      redis.call('ZADD', 'shoal:cron', over or redis.call('HGET', all, id .. ':tick'), id .. ':' .. name)
    end
  end
  if not over then
    redis.call('HDEL', all, ':paused')
  elseif many > 0 then
    redis.call('HSET', all, ':paused', over)
  end
  return many
end

-- A chat on a platform may be written to again, and its schedules go on; whether it was closed.
local function open_chat(name)
  if redis.call('HDEL', key('out', name), 'closed') == 0 then return false end
  rest_schedules(name, '')
  return true
end

-- Places of subagents have become free: who waits longest for one, in the session and in the fleet, is looked at again.
local function look_at_waiting(name, freed, now)
  for _, waiting in ipairs({key('children', name), 'shoal:subagents'}) do
    for _, next in ipairs(redis.call('ZRANGEBYSCORE', waiting, '(0', '+inf', 'LIMIT', 0, math.max(4, freed))) do
      redis.call('ZADD', 'shoal:queue:jobs', 'XX', now, 'sub:' .. next)
      wake(SUBAGENT_WAKE)
    end
  end
end

-- A subagent has ended: it leaves the work, and its record stays for an hour, for who asks late.
local function close_child(id, name, outcome, now)
  local child, children, member = key('child', id), key('children', name), 'sub:' .. id
  redis.call('ZREM', 'shoal:queue:jobs', member)
  redis.call('HDEL', 'shoal:leases:jobs', member)
  redis.call('DEL', key('ledger', id))
  redis.call('ZREM', 'shoal:subagents', id)
  redis.call('HSET', child, 'state', outcome, 'ended', integer(now))
  redis.call('HDEL', child, 'errors', 'crashes', 'spared', 'apart', 'tries', 'away', 'ledger')
  redis.call('PEXPIRE', child, 3600000)
  redis.call('ZREMRANGEBYSCORE', children, integer(3600000 - now), '(0')
  redis.call('ZADD', children, integer(-now), id)
  for _, old in ipairs(redis.call('ZRANGEBYSCORE', children, '-inf', '(0', 'LIMIT', 100, 10)) do
    redis.call('DEL', key('child', old))
    redis.call('ZREM', children, old)
  end
  if redis.call('ZCOUNT', children, 0, '+inf') == 0 then
    redis.call('PEXPIRE', children, 3600000)
  end
end

-- Ends subagents of a session without a word to its chat: all, those of one turn, or one; '' = any. How many there were.
-- Whoever runs one is told, and can write nothing more.
local function cancel_children(name, turn, only)
  local now, ended = now_ms(), 0
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', key('children', name), 0, '+inf')) do
    local its = redis.call('HGET', key('child', id), 'turn')
    if (turn == '' or turn == its) and (only == '' or only == id) then
      redis.call('PUBLISH', 'shoal:control', 'sub:' .. id .. ' 1')
      close_child(id, name, 'cancelled', now)
      ended = ended + 1
    end
  end
  if ended > 0 then
    look_at_waiting(name, ended, now)
  end
  return ended
end

-- The same with all of a session, and nothing of them stays. How many keys there were.
local function drop_children(name)
  cancel_children(name, '', '')
  local gone = 0
  for _, id in ipairs(redis.call('ZRANGE', key('children', name), 0, -1)) do
    gone = gone + redis.call('DEL', key('child', id))
  end
  return gone + redis.call('DEL', key('children', name))
end
