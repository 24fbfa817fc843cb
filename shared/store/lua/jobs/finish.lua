#!lua flags=allow-oom
-- durable
-- End an arq job, or put it back for another try.
-- returns 'finished', 'lost'
local queue, leases, wake_list, result, retry, job, abort = unpack(KEYS)
local member, lease, is_over, delay_ms, record, keep_ms = unpack(ARGV)
if not holds_lease(leases, member, lease) then return 'lost' end
-- The lease ends in both cases.
redis.call('HDEL', leases, member)
-- Finished: nothing of the job stays but its result.
if is_over == '1' then
  redis.call('ZREM', queue, member)
  redis.call('DEL', retry, job, key('crashed', member))
  redis.call('ZREM', abort, member)
  if record ~= '' then
    redis.call('SET', result, record)
    if keep_ms ~= '0' then redis.call('PEXPIRE', result, keep_ms) end
  end
else
  -- Another try, after its delay.
  redis.call('ZADD', queue, now_ms() + tonumber(delay_ms), member)
  if delay_ms == '0' then wake(wake_list) end
end
return 'finished'
