#!lua flags=allow-oom
-- Give a lease back before the work is done; what the ledger holds stays for the next owner. A job of memory that
-- crashed rests.
-- KEYS   1 queue  2 leases  3 wake  4 session ('' for a job)
-- ARGV   1 member  2 lease  3 delay ms  4 what to note: 'errors', 'crashes' (counted), 'away' (since when) or ''
-- returns 1 released, -1 the lease is lost
if not holds(KEYS[2], ARGV[1], ARGV[2]) then return -1 end
local is_turn, delay = string.sub(ARGV[1], 1, 5) == 'turn:', tonumber(ARGV[3])
if ARGV[4] == 'crashes' and not is_turn then
  delay = math.max(delay, job_crashed(ARGV[1]))
end
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('ZADD', KEYS[1], now_ms() + delay, ARGV[1])
if not is_turn then
  -- Nothing of a session to note.
elseif ARGV[4] == 'away' then
  redis.call('HSETNX', KEYS[4], 'away', integer(now_ms()))
elseif ARGV[4] ~= '' then
  redis.call('HINCRBY', KEYS[4], ARGV[4], 1)
end
if delay == 0 then
  wake(KEYS[3])
end
return 1
