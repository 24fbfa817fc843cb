#!lua flags=allow-oom
-- Decides whether a call to a provider may be made now, for all workers that use the same key.
-- hang_ms      time after which a call without news counts as dead
-- interval_us  time between two calls (0 = no limit)
-- burst        calls that may come at once
-- patience_us  time that the caller can wait
-- placed       '1' = it has waited for its place
-- caller       hash of the session that calls
-- probe_ms     time between two calls that try a route which closed because of faults
-- returns {'go', now} | {'go_and_report' how it ends, now} | {'placed', ms} a place is kept, ask
--         again after so long
--         | {'too_many' calls a minute, ms} | {'closed', ms, kind, calls held since it closed}
--         | {'trying', ms, kind, calls held} another call tries it now, the next may in so long
local limit = unpack(KEYS)
local hang_ms, interval_us, burst, patience_us, placed, caller, probe_ms = unpack(ARGV)
local us = now_us()
local now = math.floor(us / 1000)
hang_ms, probe_ms = tonumber(hang_ms), tonumber(probe_ms)
-- How long a caller waits for a call that tries, before it is told when the next one may.
local LOOK_MS = 2000
-- open_at and credit exist only while the breaker is closed or trying.
local state = redis.call('HMGET', limit, 'open_at', 'credit', 'hang', 'kind', 'streak', 'tat', 'closed_at',
  'refused')
local open_at, credit, kind = tonumber(state[1]), tonumber(state[2]), state[4]
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

-- Closed, or being tried. The functions are made here, for the usual call needs none of them.
if open_at then
  -- Returns whether a session is among those that failed, and whether it is the last one.
  local function has_failed(failed, session)
    for i, one in ipairs(failed) do
      if one.session == session then return true, i == #failed end
    end
    return false, false
  end

  -- Returns why this call may not be the one that tries the route; nil if it may.
  local function hold_back()
    -- other_at and clean_at: when a session was last held that is not the one that failed last, and
    -- one that did not fail at all.
    local found = redis.call('HMGET', limit, 'failed', 'probe_at', 'held', 'other_at', 'clean_at')
    local mine, last = has_failed(parse_failed(found[1], now, hang_ms), caller)
    local probe_at, other_at, clean_at = tonumber(found[2] or 0), tonumber(found[4] or 0), tonumber(found[5] or 0)
    local function hold(code, ms)
      local held = (tonumber(found[3]) or 0) + 1
      redis.call('HSET', limit, 'held', held, 'other_at', integer(last and other_at or now),
        'clean_at', integer(mine and clean_at or now))
      return {code, ms, kind, held}
    end
    -- Closed for everybody.
    if now < open_at then return hold(now - probe_at < LOOK_MS and 'trying' or 'closed', open_at - now) end
    -- Trying: as many calls as there is credit; after a hang the next one may try, too.
    -- (A time further away than that is from before the clock fell back.)
    local hang = tonumber(state[3])
    if kind == 'rate_limit' and credit < 1 and now < hang and hang <= now + hang_ms then return hold('trying', 0) end
    -- The session that failed last may be the reason: while others wait it tries only if none of them
    -- comes. So does each that failed, while one waits that did not.
    local lately = now - 3 * probe_ms
    local after_others = (last and other_at > lately) or (mine and clean_at > lately)
    if after_others and now < open_at + probe_ms then return hold('closed', open_at + probe_ms - now) end
  end
  local held = hold_back()
  if held then return held end
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
-- Faults, or a refused key, make the next outcome worth reporting.
if not open_at then
  return {(state[5] or state[8]) and 'go_and_report' or 'go', now}
end
if kind == 'rate_limit' then
  -- One credit less; `hang` is when a call without news counts as dead.
  redis.call('HSET', limit, 'credit', math.max(0, credit - 1), 'hang', integer(now + hang_ms))
else
  -- The next call may try after probe_ms, also if nothing is heard of this one.
  redis.call('HSET', limit, 'open_at', integer(now + probe_ms), 'probe_at', integer(now))
end
keep(hang_ms + 60000)
return {'go_and_report', now}
