#!lua flags=allow-oom
-- Write one step of the running turn ahead of what it leads to. The same step again changes nothing.
-- KEYS   1 leases  2 session  3 ledger  4 queue  5 wake, then those of the effect
-- ARGV   1 member  2 lease  3 step, counted from 1  4 record  5 cap in bytes  6 effect ('' = none), then what it takes:
--        say    KEYS 6 session  7 log  8 live of the chat that it is said to  ARGV 7 line  8 keep the log ms
-- returns 1 written, 0 it was there already, -1 the lease is lost, -2 the ledger is full
if not holds(KEYS[1], ARGV[1], ARGV[2]) then return -1 end
local have = redis.call('XLEN', KEYS[3])
if have >= tonumber(ARGV[3]) then return 0 end
if have < tonumber(ARGV[3]) - 1 then
  -- The server lost steps that it had confirmed. A ledger with a hole would mislead a successor: it begins where the
  -- ledger really ends, and at once.
  redis.call('HDEL', KEYS[1], ARGV[1])
  redis.call('ZADD', KEYS[4], now_ms(), ARGV[1])
  wake(KEYS[5])
  return -1
end
local size = redis.call('HINCRBY', KEYS[2], 'ledger', #ARGV[4])
if size > tonumber(ARGV[5]) then
  redis.call('HINCRBY', KEYS[2], 'ledger', -#ARGV[4])
  return -2
end
redis.call('XADD', KEYS[3], ARGV[3] .. '-0', 'm', ARGV[4])
if ARGV[6] == 'say' then
  add_line(KEYS[6], KEYS[7], KEYS[8], ARGV[7], ARGV[8])
end
-- Progress: whatever killed earlier attempts was not this message alone.
redis.call('HDEL', KEYS[2], 'crashes')
return 1
