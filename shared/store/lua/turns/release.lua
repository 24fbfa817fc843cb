#!lua flags=allow-oom
-- Gives a lease back before the work is done; the ledger stays for the next owner. A turn keeps the
-- place in the queue of its first claim. A job of memory that crashed rests for a while.
-- record  session or subagent that counts attempts ('' for a job)
-- note    'errors', 'crashes', 'isolated' (counted), 'away' (since when its model does not answer),
--         'alone' (likewise, and since when the provider fails this work alone), 'newer' (since when
--         it waits for a worker of a newer release, with the same patience) or ''
-- returns 'released', 'lost'
local queue, leases, wake_list, record, MODEL_WAITS = unpack(KEYS)
local member, lease, delay_ms, note = unpack(ARGV)
-- Only the holder may give it back; a successor's lease stays.
if not holds_lease(leases, member, lease) then return 'lost' end
local is_job, delay = record == NO_KEY, tonumber(delay_ms)
local now = now_ms()

-- Puts the member back into its queue, and notes what became of the attempt.
local function put_back()
  -- A turn returns by what its inbox demands; other members only get a new due time.
  local head = string.sub(member, 1, 5) == 'turn:'
    and redis.call('XRANGE', key('inbox', string.sub(member, 6)), '-', '+', 'COUNT', 1)[1]
  if head then
    -- A turn given back at once keeps the place of its first claim; its wait counts from now.
    local place = delay == 0 and string.match(redis.call('HGET', record, 'place') or '', '^%d+')
    requeue(queue, wake_list, record, member, head, place and math.min(now, tonumber(place)) or now + delay, now)
    if place then
      redis.call('HSET', record, 'place', place .. ' ' .. integer(now))
      local fair_key = guarded('HGET', FAIR_KEYS, member)
      -- '+' exempts it from fair sharing: it had its turn already.
      if fair_key and fair_key ~= 'background' then
        set_fair_key(member, '+' .. fair_key)
      end
    end
  else
    redis.call('ZADD', queue, now + delay, member)
  end
  -- A job has no record in which an outcome could be stored.
  if is_job then return end
  -- HSETNX: the first time counts, from which the patience with an unavailable model is measured.
  if note == 'away' or note == 'alone' or note == 'newer' then
    redis.call('HSETNX', record, 'away', integer(now))
    if note == 'alone' then
      redis.call('HSETNX', record, 'alone', integer(now))
    else
      redis.call('HDEL', record, 'alone')
    end
    if note ~= 'newer' then note_model_wait(MODEL_WAITS, member, now, delay) end
  -- A process with other work in it died: `count_crash` decides how much that says.
  elseif note == 'crashes' then
    count_crash(record)
  -- Its child of the quarantine died, of this work or of the few others in it.
  elseif note == 'isolated' then
    count_up(record, 'crashes', 1)
  elseif note ~= '' then
    count_up(record, note, 1)
  end
end
-- A job of memory rests after a crash, which may be longer than the delay asked for.
if note == 'crashes' and is_job then
  delay = math.max(delay, count_job_crash(member))
end
-- From here on any worker may claim it, from its due time on.
redis.call('HDEL', leases, member)
-- A chat whose keys are broken is tried again in a minute, as by acquire.lua. The leases that are
-- released after this one must not wait for it.
if not pcall(put_back) then
  guarded('ZADD', queue, now + math.max(delay, 60000), member)
end
-- Due now: wake a worker that may take it.
if delay == 0 then
  wake_for(member, wake_list)
end
return 'released'
