-- What the scripts of the way out share. How far a chat is stands in one hash:
--   sending  '<line> <post> <newest> <lease>' while a post may be on its way; `newest` is the last line that waited then
--   done     '<line> <posts>' of the first line, as far as the platform has it
--   unsure   posts of the first line that were sent again, so that one may be there twice
--   tries    how often the chat was put off since something arrived
--   bubble   '<turn> <id>' of the message that a turn is streamed into
--   meant    '<turn> <key>' of one that was about to be sent; its id is not known
--   closed   since when nothing may be said there, in ms
--   notes    what the platform's code wants to know when it sends
--   full     lines that were given up since somebody looked, because too many waited
local function first_of(stream)
  return redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
end

local function number_of(entry)
  return string.match(entry[1], '%d+')
end

-- How many posts of the first line the platform has.
local function posts_done(state, line)
  local of, posts = string.match(redis.call('HGET', state, 'done') or '', '^(%d+) (%d+)$')
  return of == line and tonumber(posts) or 0
end

-- The lease under which this post may be on its way, and the newest line then.
local function mark_of(state, line, post)
  local of, its, newest, lease =
    string.match(redis.call('HGET', state, 'sending') or '', '^(%d+) (%d+) (%d+) (%S+)$')
  if of == line and its == tostring(post) then return lease, newest end
end

-- Where a post stands: 0 it is the next, -1 it was ended before, 1 it is not its turn: the server lost what came before.
local function standing(state, box, line, post)
  local first = first_of(box)
  local head = first and tonumber(number_of(first))
  if not head or tonumber(line) < head then return -1 end
  if tonumber(line) > head then return 1 end
  local next = posts_done(state, line)
  return tonumber(post) == next and 0 or tonumber(post) < next and -1 or 1
end

-- All that a gateway must know of a chat to go on with it. Any mark but its own is one of nobody knows what.
local function chat_row(state, box, inbox, lease, many, now)
  local told = redis.call('HMGET', state, 'bubble', 'closed', 'notes', 'tries', 'meant')
  local entries = {}
  for i, entry in ipairs(redis.call('XRANGE', box, '-', '+', 'COUNT', many)) do
    entries[i] = {number_of(entry), integer(now - tonumber(field(entry, 'at') or now)), field(entry, 'm')}
  end
  local line = entries[1] and entries[1][1] or ''
  local done = posts_done(state, line)
  local mark = mark_of(state, line, done)
  local head = first_of(inbox)
  return {
    entries, done, mark and mark ~= lease and 1 or 0, told[1] or '', told[2] and 1 or 0, told[3] or '', told[4] or '0',
    head and number_of(head) or '', head and field(head, 'p') == 'background' and 1 or 0, told[5] or '',
  }
end

-- Gives a chat up, for whoever comes next; those who wait are told when that may be now.
local function hand_over(queue, leases, name, delay_ms)
  redis.call('HDEL', leases, name)
  redis.call('ZADD', queue, integer(now_ms() + delay_ms), name)
  if delay_ms == 0 then
    redis.call('PUBLISH', key('live', string.match(name, '^[^:]+')), name)
  end
end

local function keep_lease(queue, name, lease_ms)
  redis.call('ZADD', queue, 'XX', integer(now_ms() + tonumber(lease_ms)), name)
end

-- Takes lines out, the first among them.
local function end_lines(name, state, box, waits, ids)
  redis.call('XDEL', box, unpack(ids))
  redis.call('HDEL', state, 'sending', 'done', 'unsure', 'tries')
  local first = first_of(box)
  if first then
    redis.call('ZADD', waits, field(first, 'at') or integer(now_ms()), name)
  else
    redis.call('DEL', box)
    redis.call('ZREM', waits, name)
  end
end

-- A chat with nothing to deliver is nobody's.
local function leave_outqueue(queue, leases, state, waits, name, running)
  redis.call('ZREM', queue, name)
  redis.call('HDEL', leases, name)
  redis.call('ZREM', waits, name)
  redis.call('HDEL', state, 'sending', 'done', 'unsure', 'tries')
  if not running then
    redis.call('HDEL', state, 'bubble', 'meant')
  end
end

-- One call off each budget, or none of any; how many ms to wait for that. GCRA: the time until which calls are paid for.
-- The keys begin at `first`, their arguments (us between two calls, calls at once, those that stay for others) at `args`.
local function take_rates(pause, first, args)
  local wait, us, paid = math.max(0, redis.call('PTTL', pause)), now_us(), {}
  for i = first, #KEYS do
    local interval, burst, reserve = tonumber(ARGV[args]), tonumber(ARGV[args + 1]), tonumber(ARGV[args + 2])
    args = args + 3
    -- Not beyond what the burst allows, or a clock that fell back would stop everything.
    local tat = math.min(us + interval * burst, math.max(us, tonumber(redis.call('GET', KEYS[i]) or 0)))
    wait = math.max(wait, math.ceil((tat - (burst - 1 - reserve) * interval - us) / 1000))
    paid[i] = tat + interval
  end
  if wait > 0 then return wait end
  for i, tat in pairs(paid) do
    redis.call('SET', KEYS[i], integer(tat), 'PX', integer(math.ceil((tat - us) / 1000)))
  end
  return 0
end
