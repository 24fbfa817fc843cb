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
  return string.format('%.0f', number)
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

-- Gives a line the next number of its chat's log, keeps it, and shows it.
local function add_line(session, log, live, line, keep_ms)
  local seq = redis.call('HINCRBY', session, 'log', 1)
  redis.call('XADD', log, seq .. '-0', 'm', line)
  local unread = seq - tonumber(redis.call('HGET', session, 'acked') or 0)
  redis.call('XTRIM', log, 'MAXLEN', math.min(2000, math.max(500, unread)))
  redis.call('PEXPIRE', log, keep_ms)
  redis.call('PUBLISH', live, seq .. ' ' .. line)
  return seq
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
  redis.call('EXPIRE', today, (days + 1) * 86400)
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
