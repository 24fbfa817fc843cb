#!lua flags=allow-oom
-- Write one step of the running turn ahead of what it leads to. The same step again changes nothing.
-- KEYS   1 leases  2 session  3 ledger
-- ARGV   1 member  2 lease  3 step, counted from 1  4 record  5 cap in bytes
-- returns 1 written, 0 it was there already, -1 the lease is lost, -2 the ledger is full
if not holds(KEYS[1], ARGV[1], ARGV[2]) then return -1 end
if redis.call('XLEN', KEYS[3]) >= tonumber(ARGV[3]) then return 0 end
local size = redis.call('HINCRBY', KEYS[2], 'ledger', #ARGV[4])
if size > tonumber(ARGV[5]) then
  redis.call('HINCRBY', KEYS[2], 'ledger', -#ARGV[4])
  return -2
end
redis.call('XADD', KEYS[3], ARGV[3] .. '-0', 'm', ARGV[4])
-- Progress: whatever killed earlier attempts was not this message alone.
redis.call('HDEL', KEYS[2], 'crashes')
return 1
