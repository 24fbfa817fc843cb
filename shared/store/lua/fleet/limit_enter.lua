#!lua flags=allow-oom
-- Decides whether a call to a provider may be made now, for all workers that use the same key.
-- KEYS   1 limit
-- ARGV   1 ms after which a call without news counts as dead  2 us between two calls (0 = no limit)
--        3 calls that may come at once  4 us that the caller can wait  5 '1' = it has waited for its place
-- returns {0, now} go; {1, now} go, and tell how it ends; {2, ms} a place is kept, ask again after so long;
--         {3, ms} too many calls a minute; {4, ms, kind} closed for so long; {5, 0, kind} others are trying it now
local limit = KEYS[1]
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
  if now < open_at then return {4, open_at - now, state[4]} end
  -- Trying: as many calls as there is credit; after a hang the next one may try, too.
  -- (A time further away than that is from before the clock fell back.)
  if credit < 1 and now < tonumber(state[3]) and tonumber(state[3]) <= now + tonumber(ARGV[1]) then return {5, 0, state[4]} end
end
local interval = tonumber(ARGV[2])
-- A caller that waited for its place passes: it paid when the place was given.
if interval > 0 and ARGV[5] ~= '1' then
  -- GCRA: `tat` is when the next call is due if all come evenly; all but one of a burst may come
  -- sooner.
  local tat = math.max(tonumber(state[6]) or 0, us)
  -- A burst and the patience of a caller, which is below 10 s, are paid ahead at most. More is from
  -- before the clock fell back.
  if tat > us + tonumber(ARGV[3]) * interval + 10000000 then tat = us end
  local wait = math.max(0, tat - (tonumber(ARGV[3]) - 1) * interval - us)
  -- Longer than the caller can wait: no place is kept.
  if wait > tonumber(ARGV[4]) then return {3, math.ceil(wait / 1000)} end
  redis.call('HSET', limit, 'tat', integer(tat + interval))
  keep((tat + interval - us) / 1000 + 1000)
  if wait > 0 then return {2, math.ceil(wait / 1000)} end
end
-- A streak of faults makes the next outcome worth reporting.
if not open_at then
  return {state[5] and 1 or 0, now}
end
-- One credit less; `hang` is when a call without news counts as dead.
redis.call('HSET', limit, 'credit', math.max(0, credit - 1), 'hang', integer(now + ARGV[1]))
keep(ARGV[1] + 60000)
return {1, now}
