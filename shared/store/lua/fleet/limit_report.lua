#!lua flags=allow-oom
-- Records how a call to a provider ended, for all workers that use the same key.
-- KEYS   1 limit
-- ARGV   1 when it was let in  2 'ok', 'void' (it says nothing about the provider), or the kind of its fault
--        3 Retry-After in ms ('' = none)  4 other faults in a row that close the way  5 longest own wait ms
--        6 jitter, 0.5 to 1  7 ms after which a call without news counts as dead
-- returns 1 the way was closed by this, 2 it is wholly open again, 0 neither
-- Shortest and longest time closed in ms, and good calls after which it counts as open again.
local SOON, LONG, ENOUGH = 250, 3600000, 32
local limit, ended = KEYS[1], ARGV[2]
local now = now_ms()
local state = redis.call('HMGET', limit, 'closed_at', 'open_at')
local closed_at, open_at = tonumber(state[1]), tonumber(state[2])
-- A call that was under way when the way was closed knows nothing of the time since.
local stale = closed_at and tonumber(ARGV[1]) <= closed_at

local function keep(ms)
  if redis.call('PTTL', limit) < ms then redis.call('PEXPIRE', limit, integer(ms)) end
end

-- The key outlives the closed time, so that a late report still finds it.
local function close_until(time)
  redis.call('HSET', limit, 'open_at', integer(time))
  keep(time - now + ARGV[7] + 60000)
end

-- A good call while trying: two more may enter for each, so that a crowd returns over several
-- rounds; after ENOUGH of them the breaker is gone.
local function recover()
  -- Says nothing about the provider: only its credit comes back.
  if ended == 'void' then
    redis.call('HINCRBY', limit, 'credit', 1)
    return 0
  end
  redis.call('HINCRBY', limit, 'credit', 2)
  if redis.call('HINCRBY', limit, 'good', 1) < ENOUGH then return 0 end
  redis.call('HDEL', limit, 'open_at', 'credit', 'hang', 'kind', 'good', 'closings', 'streak')
  return 2
end
if ended == 'ok' or ended == 'void' then
  -- Good news of before the fault is no news.
  if stale then return 0 end
  if open_at then return recover() end
  -- One good call ends a streak of faults.
  if ended == 'ok' then redis.call('HDEL', limit, 'streak') end
  return 0
end
-- A late 429 may still know better how long to wait.
local asked = tonumber(ARGV[3])
if stale then
  if open_at and asked and now + math.min(asked, LONG) > open_at then close_until(now + math.min(asked, LONG)) end
  return 0
end
-- Other faults close the breaker only when several come in a row; a 429 does at once.
if ended ~= 'rate_limit' and not open_at and redis.call('HINCRBY', limit, 'streak', 1) < tonumber(ARGV[4]) then
  keep(ARGV[7] + 60000)
  return 0
end
local closings = redis.call('HINCRBY', limit, 'closings', 1)
-- The provider's own wish, else 1, 2, 4, ... seconds with jitter.
local wait = asked or math.min(tonumber(ARGV[5]), 1000 * 2 ^ (math.min(closings, 20) - 1)) * tonumber(ARGV[6])
local kind = ended == 'rate_limit' and ended or 'overloaded'
redis.call('HSET', limit, 'closed_at', integer(now), 'credit', 1, 'good', 0, 'kind', kind)
close_until(now + math.max(SOON, math.min(wait, LONG)))
return 1
