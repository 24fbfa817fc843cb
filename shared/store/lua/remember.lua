#!lua flags=allow-oom
-- Write a MEMORY.md, if it is still as it was read.
-- KEYS   1 memory  2 leases
-- ARGV   1 version it was made from  2 text  3 keep ms  4 member  5 lease ('' = no turn writes this)
-- returns {1, new version}, {0} it has changed, {-1} the lease is lost
if ARGV[5] ~= '' and not holds(KEYS[2], ARGV[4], ARGV[5]) then return {-1} end
if (redis.call('HGET', KEYS[1], 'v') or '0') ~= ARGV[1] then return {0} end
local version = set_memory(KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {1, version}
