#!lua flags=allow-oom
-- Decides whether a call to a provider may be made now, for all workers that use the same key.
-- hang_ms      time after which a call without news counts as dead
-- interval_us  time between two calls (0 = no limit)
-- burst        calls that may come at once
-- patience_us  time that the caller can wait
-- placed       '1' = it has waited for its place
-- returns {'go', now} | {'go_and_report' how it ends, now} | {'placed', ms} a place is kept, ask
--         again after so long
--         | {'too_many' calls a minute, ms} | {'closed', ms, kind} | {'trying', 0, kind} others are
--         trying it now
local limit = unpack(KEYS)
local hang_ms, interval_us, burst, patience_us, placed = unpack(ARGV)
local us = now_us()
local now = math.floor(us / 1000)
-- open_at and credit exist only while the breaker is closed or trying.
local state = redis.call('HMGET', limit, 'open_at', 'credit', 'hang', 'kind', 'streak', 'tat', 'closed_at')
local open_at, credit = tonumber(state[1]), tonumber(state[2])
-- Closed at a time that is still to come: the clock fell back. One caller may try now, and what it
-- reports counts, because it was let in after the breaker closed.
if open_at and now < tonumber(state[7] or 0) then
  redis.call('HSET', limit, 'closed_at', integer(now - 1), 'open_at', integer(now), 'credit', 1)
  open_at, credit = now, 1
end

-- Lengthens the life of the key, never shortens it.
local function keep(ms)
  if redis.call('PTTL', limit) < ms then redis.call('PEXPIRE', limit, integer(ms)) end
end
if open_at then
  -- Closed for everybody.
  if now < open_at then return {'closed', open_at - now, state[4]} end
  -- Trying: as many calls as there is credit; after a hang the next one may try, too.
  -- (A time further away than that is from before the clock fell back.)
  if credit < 1 and now < tonumber(state[3]) and tonumber(state[3]) <= now + tonumber(hang_ms) then return {'trying', 0, state[4]} end
end
interval_us, burst = tonumber(interval_us), tonumber(burst)
-- A caller that waited for its place passes: it paid when the place was given.
if interval_us > 0 and placed ~= '1' then
  -- GCRA: `tat` is when the next call is due if all come evenly; all but one of a burst may come
  -- sooner.
  local tat = math.max(tonumber(state[6]) or 0, us)
  -- A burst and the patience of a caller, which is below 10 s, are paid ahead at most. More is from
  -- before the clock fell back.
  if tat > us + burst * interval_us + 10000000 then tat = us end
  local wait = math.max(0, tat - (burst - 1) * interval_us - us)
  -- Longer than the caller can wait: no place is kept.
  if wait > tonumber(patience_us) then return {'too_many', math.ceil(wait / 1000)} end
  redis.call('HSET', limit, 'tat', integer(tat + interval_us))
  keep((tat + interval_us - us) / 1000 + 1000)
  if wait > 0 then return {'placed', math.ceil(wait / 1000)} end
end
-- A streak of faults makes the next outcome worth reporting.
if not open_at then
  return {state[5] and 'go_and_report' or 'go', now}
end
-- One credit less; `hang` is when a call without news counts as dead.
redis.call('HSET', limit, 'credit', math.max(0, credit - 1), 'hang', integer(now + hang_ms))
keep(hang_ms + 60000)
return {'go_and_report', now}
