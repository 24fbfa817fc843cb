#!lua flags=allow-oom
-- Records how a call to a provider ended, for all workers that use the same key.
-- entered         time when it was let in
-- ended           'ok', 'void' (it says nothing about the provider), 'refused' (nor this, but the key
--                 is not accepted), or the kind of its fault
-- retry_after_ms  '' = none was asked for
-- caller          hash of the session that called
-- most_faults     other faults that close the route, of several sessions
-- most_wait_ms    longest wait of our own after a 429
-- probe_ms        time between two calls that try a route which closed because of other faults
-- jitter          0.5 to 1
-- hang_ms         time after which a call without news counts as dead, and a fault as old
-- returns 'closed' = the route was closed by this, 'opened' = it is wholly open again, 'alone' = a
--         fault that the session met alone, while the route works for others or nobody else uses it,
--         '' = none of these
local limit = unpack(KEYS)
local entered, ended, retry_after_ms, caller, most_faults, most_wait_ms, probe_ms, jitter, hang_ms = unpack(ARGV)
-- Shortest and longest time closed in ms, good calls after which a rate limit counts as over, and
-- how long a success speaks for the provider.
local SOON, LONG, ENOUGH, FRESH = 250, 3600000, 32, 60000
local now = now_ms()
entered = tonumber(entered)
local state = redis.call('HMGET', limit, 'closed_at', 'open_at', 'kind', 'streak', 'failed', 'ok_at', 'refused')
local closed_at, open_at, limited = tonumber(state[1]), tonumber(state[2]), state[3] == 'rate_limit'
-- A call that was under way when the way was closed knows nothing of the time since.
local stale = closed_at and entered <= closed_at

local function keep(ms)
  if redis.call('PTTL', limit) < ms then redis.call('PEXPIRE', limit, integer(ms)) end
end

-- The key outlives the closed time, so that a late report still finds it.
local function close_until(time)
  redis.call('HSET', limit, 'open_at', integer(time))
  keep(time - now + hang_ms + 60000)
end

-- The provider answers: what was counted against it is forgotten.
local function succeed()
  redis.call('HSET', limit, 'ok_at', integer(now))
  redis.call('HDEL', limit, 'open_at', 'credit', 'hang', 'kind', 'good', 'closings', 'streak', 'failed', 'probe_at',
    'held', 'other_at', 'clean_at', 'refused')
  keep(hang_ms + 60000)
end

-- A good call after a pause that the provider asked for: two more may enter for each, so that a crowd
-- returns over several rounds; after ENOUGH of them the breaker is gone.
local function let_in_more()
  redis.call('HINCRBY', limit, 'credit', 2)
  if redis.call('HINCRBY', limit, 'good', 1) < ENOUGH then return '' end
  succeed()
  return 'opened'
end
if ended == 'refused' then
  redis.call('HSET', limit, 'refused', integer(now))
  keep(86400000)
end
if ended == 'void' or ended == 'refused' then
  if stale or not open_at then return '' end
  -- It says nothing about the provider: another call may try at once.
  if limited then
    redis.call('HINCRBY', limit, 'credit', 1)
  else
    redis.call('HSET', limit, 'open_at', integer(now))
    redis.call('HDEL', limit, 'probe_at')
  end
  return ''
end
if ended == 'ok' then
  if open_at and limited then return stale and '' or let_in_more() end
  -- A success of anyone, whenever it began: the provider answers.
  if open_at or state[4] or state[7] then succeed() end
  return open_at and 'opened' or ''
end
local asked = tonumber(retry_after_ms)
if stale then
  -- A late 429 may still know better how long to wait.
  if open_at and asked and now + math.min(asked, LONG) > open_at then close_until(now + math.min(asked, LONG)) end
  return ''
end
-- Adds a fault of a session, which becomes the last one. At most 64 sessions are known: that is
-- enough to tell one from many.
local function add_fault(failed, session, now)
  local faults = 1
  for i, one in ipairs(failed) do
    if one.session == session then
      faults = table.remove(failed, i).faults + 1
      break
    end
  end
  if #failed >= 64 then table.remove(failed, 1) end
  failed[#failed + 1] = {session = session, faults = faults, at = integer(now)}
end

-- Returns the text of field `failed`.
local function format_failed(failed)
  local parts = {}
  for i, one in ipairs(failed) do
    parts[i] = one.session .. ':' .. integer(one.faults) .. ':' .. one.at
  end
  return table.concat(parts, ' ')
end

-- Whether these faults close the route: `most` of them, of which one session counts for at most
-- half. What one session meets alone, however often, may be due to what it sends.
local function closes_route(failed, most)
  local counted = 0
  for _, one in ipairs(failed) do
    counted = counted + math.min(one.faults, math.ceil(most / 2))
  end
  return #failed > 1 and counted >= most
end
local failed = parse_failed(state[5], now, hang_ms)
add_fault(failed, caller, now)
redis.call('HSET', limit, 'failed', format_failed(failed))
redis.call('HINCRBY', limit, 'streak', 1)
keep(hang_ms + 60000)

-- A failed try closes the route again. An open one is closed by a provider that names a time, by a
-- 429 that a second session meets, and by enough other faults.
local function closes()
  if open_at then return true end
  if ended == 'rate_limit' then return asked or #failed > 1 end
  return closes_route(failed, tonumber(most_faults))
end
if not closes() then
  -- Also a refused connection or a silence is the session's own, when others are answered.
  local others_served = now - tonumber(state[6] or 0) < FRESH
  return (others_served or (#failed == 1 and ended == 'overloaded')) and 'alone' or ''
end
local closings = redis.call('HINCRBY', limit, 'closings', 1)
local wait, kind
if ended == 'rate_limit' then
  -- The provider's own wish, else 1, 2, 4, ... seconds with jitter.
  wait = asked or math.min(tonumber(most_wait_ms), 1000 * 2 ^ (math.min(closings, 20) - 1)) * tonumber(jitter)
  kind = 'rate_limit'
else
  -- From one try to the next, not from its end.
  local rest = open_at and entered + probe_ms - now or tonumber(probe_ms)
  wait = math.max(asked or 0, rest)
  kind = 'overloaded'
end
redis.call('HSET', limit, 'closed_at', integer(now), 'credit', 1, 'good', 0, 'kind', kind, 'held', 0)
redis.call('HDEL', limit, 'probe_at')
close_until(now + math.max(SOON, math.min(wait, LONG)))
return 'closed'
