#!lua flags=allow-oom
-- End an arq job, or put it back for another try.
-- KEYS   1 queue  2 leases  3 wake  4 result  5 retry counter  6 job  7 aborted jobs
-- ARGV   1 member  2 lease  3 '1' = finished  4 delay ms of the next try  5 result ('' = none)  6 keep it ms (0 = for ever)
-- returns 1 done, -1 the lease is lost
local member = ARGV[1]
if not holds_lease(KEYS[2], member, ARGV[2]) then return -1 end
-- The lease ends in both cases.
redis.call('HDEL', KEYS[2], member)
-- Finished: nothing of the job stays but its result.
if ARGV[3] == '1' then
  redis.call('ZREM', KEYS[1], member)
  redis.call('DEL', KEYS[5], KEYS[6], key('crashed', member))
  redis.call('ZREM', KEYS[7], member)
  if ARGV[5] ~= '' then
    redis.call('SET', KEYS[4], ARGV[5])
    if ARGV[6] ~= '0' then redis.call('PEXPIRE', KEYS[4], ARGV[6]) end
  end
else
  -- Another try, after its delay.
  redis.call('ZADD', KEYS[1], now_ms() + tonumber(ARGV[4]), member)
  if ARGV[4] == '0' then wake(KEYS[3]) end
end
return 1
