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
