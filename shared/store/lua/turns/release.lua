#!lua flags=allow-oom
-- Gives a lease back before the work is done; the ledger stays for the next owner. A turn keeps the
-- place in the queue of its first claim. A job of memory that crashed rests for a while.
-- KEYS   1 queue  2 leases  3 wake  4 session or child ('' for a job)
-- ARGV   1 member  2 lease  3 delay ms  4 what to note: 'errors', 'crashes', 'isolated' (counted), 'away' (since when) or ''
-- returns 1 released, -1 the lease is lost
-- Only the holder may give it back; a successor's lease stays.
if not holds_lease(KEYS[2], ARGV[1], ARGV[2]) then return -1 end
local is_job, delay = KEYS[4] == '', tonumber(ARGV[3])
local now = now_ms()

-- Puts the member back into its queue, and notes what became of the attempt.
local function put_back()
  -- A turn returns by what its inbox demands; other members only get a new due time.
  local head = string.sub(ARGV[1], 1, 5) == 'turn:'
    and redis.call('XRANGE', key('inbox', string.sub(ARGV[1], 6)), '-', '+', 'COUNT', 1)[1]
  if head then
    -- A turn given back at once keeps the place of its first claim; its wait counts from now.
    local place = delay == 0 and string.match(redis.call('HGET', KEYS[4], 'place') or '', '^%d+')
    requeue(KEYS[1], KEYS[3], KEYS[4], ARGV[1], head, place and math.min(now, tonumber(place)) or now + delay, now)
    if place then
      redis.call('HSET', KEYS[4], 'place', place .. ' ' .. integer(now))
      local fair_key = guarded('HGET', FAIR_KEYS, ARGV[1])
      -- '+' exempts it from fair sharing: it had its turn already.
      if fair_key and fair_key ~= 'background' then
        set_fair_key(ARGV[1], '+' .. fair_key)
      end
    end
  else
    redis.call('ZADD', KEYS[1], now + delay, ARGV[1])
  end
  -- A job has no record in which an outcome could be stored.
  if is_job then return end
  -- HSETNX: the first time counts, from which the patience with an unavailable model is measured.
  if ARGV[4] == 'away' then
    redis.call('HSETNX', KEYS[4], 'away', integer(now))
  -- A process with other work in it died: `count_crash` decides how much that says.
  elseif ARGV[4] == 'crashes' then
    count_crash(KEYS[4])
  -- Its child of the quarantine died, of this work or of the few others in it.
  elseif ARGV[4] == 'isolated' then
    count_up(KEYS[4], 'crashes', 1)
  elseif ARGV[4] ~= '' then
    count_up(KEYS[4], ARGV[4], 1)
  end
end
-- A job of memory rests after a crash, which may be longer than the delay asked for.
if ARGV[4] == 'crashes' and is_job then
  delay = math.max(delay, count_job_crash(ARGV[1]))
end
-- From here on any worker may claim it, from its due time on.
redis.call('HDEL', KEYS[2], ARGV[1])
-- A chat whose keys are broken is tried again in a minute, as by acquire.lua. The leases that are
-- released after this one must not wait for it.
if not pcall(put_back) then
  guarded('ZADD', KEYS[1], now + math.max(delay, 60000), ARGV[1])
end
-- Due now: wake a worker that may take it.
if delay == 0 then
  wake_for(ARGV[1], KEYS[3])
end
return 1
