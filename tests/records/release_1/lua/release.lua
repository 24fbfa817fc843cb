#!lua flags=allow-oom
-- Give a lease back before the work is done; what the ledger holds stays for the next owner.
-- KEYS   1 queue  2 leases  3 wake  4 session
-- ARGV   1 member  2 lease  3 delay ms  4 what to note: 'errors', 'crashes' (counted), 'away' (since when) or ''
-- returns 1 released, -1 the lease is lost
if not holds(KEYS[2], ARGV[1], ARGV[2]) then return -1 end
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('ZADD', KEYS[1], now_ms() + tonumber(ARGV[3]), ARGV[1])
if ARGV[4] == 'away' then
  redis.call('HSETNX', KEYS[4], 'away', integer(now_ms()))
elseif ARGV[4] ~= '' then
  redis.call('HINCRBY', KEYS[4], ARGV[4], 1)
end
if tonumber(ARGV[3]) == 0 then
  wake(KEYS[3])
end
return 1
