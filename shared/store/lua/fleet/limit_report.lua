#!lua flags=allow-oom
-- Records how a call to a provider ended, for all workers that use the same key.
-- entered         time when it was let in
-- ended           'ok', 'void' (it says nothing about the provider), or the kind of its fault
-- retry_after_ms  '' = none was asked for
-- most_faults     other faults in a row that close the route
-- most_wait_ms    longest wait of our own
-- jitter          0.5 to 1
-- hang_ms         time after which a call without news counts as dead
-- returns 'closed' = the route was closed by this, 'opened' = it is wholly open again, '' = neither
local limit = unpack(KEYS)
local entered, ended, retry_after_ms, most_faults, most_wait_ms, jitter, hang_ms = unpack(ARGV)
-- Shortest and longest time closed in ms, and good calls after which it counts as open again.
local SOON, LONG, ENOUGH = 250, 3600000, 32
local now = now_ms()
local state = redis.call('HMGET', limit, 'closed_at', 'open_at')
local closed_at, open_at = tonumber(state[1]), tonumber(state[2])
-- A call that was under way when the way was closed knows nothing of the time since.
local stale = closed_at and tonumber(entered) <= closed_at

local function keep(ms)
  if redis.call('PTTL', limit) < ms then redis.call('PEXPIRE', limit, integer(ms)) end
end

-- The key outlives the closed time, so that a late report still finds it.
local function close_until(time)
  redis.call('HSET', limit, 'open_at', integer(time))
  keep(time - now + hang_ms + 60000)
end

-- A good call while trying: two more may enter for each, so that a crowd returns over several
-- rounds; after ENOUGH of them the breaker is gone.
local function recover()
  -- Says nothing about the provider: only its credit comes back.
  if ended == 'void' then
    redis.call('HINCRBY', limit, 'credit', 1)
    return ''
  end
  redis.call('HINCRBY', limit, 'credit', 2)
  if redis.call('HINCRBY', limit, 'good', 1) < ENOUGH then return '' end
  redis.call('HDEL', limit, 'open_at', 'credit', 'hang', 'kind', 'good', 'closings', 'streak')
  return 'opened'
end
if ended == 'ok' or ended == 'void' then
  -- Good news of before the fault is no news.
  if stale then return '' end
  if open_at then return recover() end
  -- One good call ends a streak of faults.
  if ended == 'ok' then redis.call('HDEL', limit, 'streak') end
  return ''
end
-- A late 429 may still know better how long to wait.
local asked = tonumber(retry_after_ms)
if stale then
  if open_at and asked and now + math.min(asked, LONG) > open_at then close_until(now + math.min(asked, LONG)) end
  return ''
end
-- Other faults close the breaker only when several come in a row; a 429 does at once.
if ended ~= 'rate_limit' and not open_at and redis.call('HINCRBY', limit, 'streak', 1) < tonumber(most_faults) then
  keep(hang_ms + 60000)
  return ''
end
local closings = redis.call('HINCRBY', limit, 'closings', 1)
-- The provider's own wish, else 1, 2, 4, ... seconds with jitter.
local wait = asked or math.min(tonumber(most_wait_ms), 1000 * 2 ^ (math.min(closings, 20) - 1)) * tonumber(jitter)
local kind = ended == 'rate_limit' and ended or 'overloaded'
redis.call('HSET', limit, 'closed_at', integer(now), 'credit', 1, 'good', 0, 'kind', kind)
close_until(now + math.max(SOON, math.min(wait, LONG)))
return 'closed'
