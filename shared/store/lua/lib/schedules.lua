-- Schedules of a chat.
--
-- Removes one schedule of a chat and returns whether it existed. With the last one, everything that
-- is stored about the chat's schedules goes, too.
local function drop_schedule(name, id)
  local all = key('cron', name)
  guarded('ZREM', PREFIX .. 'cron', id .. ':' .. name)
  local existed = redis.call('HDEL', all, id) == 1
  redis.call('HDEL', all, id .. ':tick', id .. ':runs', id .. ':missed', id .. ':last')
  -- A field without a colon is a schedule; `<id>:tick` and the like only describe one.
  for _, one in ipairs(redis.call('HKEYS', all)) do
    if not string.find(one, ':') then return existed end
  end
  redis.call('DEL', all)
  return existed
end

-- Removes every schedule of a chat; returns how many keys were deleted.
local function drop_schedules(name)
  for _, one in ipairs(guarded('HKEYS', key('cron', name)) or {}) do
    if not string.find(one, ':') then
      guarded('ZREM', PREFIX .. 'cron', one .. ':' .. name)
    end
  end
  return redis.call('DEL', key('cron', name))
end

-- Pauses a chat's schedules, which are given up after `ms`, or resumes them (ms ''). Returns how
-- many schedules that changed.
local function pause_schedules(name, ms)
  local all = key('cron', name)
  local paused = redis.call('HGET', all, ':paused')
  -- Already as wanted: a repeated call must not move their times again.
  if (ms == '') == not paused then return 0 end
  local count = 0
  local until_ms = ms ~= '' and integer(now_ms() + tonumber(ms))
  for _, id in ipairs(redis.call('HKEYS', all)) do
    if not string.find(id, ':') then
      count = count + 1
      -- Paused schedules come due only at the end of the pause, when they are dropped; resumed ones
      -- return to their own next tick.
      redis.call('ZADD', PREFIX .. 'cron', until_ms or redis.call('HGET', all, id .. ':tick'), id .. ':' .. name)
    end
  end
  if not until_ms then
    redis.call('HDEL', all, ':paused')
  elseif count > 0 then
    redis.call('HSET', all, ':paused', until_ms)
  end
  return count
end

-- Allows deliveries to a chat again and resumes its schedules; returns whether it was closed.
local function reopen_chat(name)
  if redis.call('HDEL', key('out', name), 'closed') == 0 then return false end
  pause_schedules(name, '')
  return true
end
