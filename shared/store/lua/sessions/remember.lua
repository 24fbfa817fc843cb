#!lua flags=allow-oom
-- Writes a MEMORY.md if nobody changed it since it was read. The same write again changes nothing.
-- KEYS   1 memory  2 leases
-- ARGV   1 version it was made from  2 text  3 keep ms  4 member  5 lease ('' = no turn writes this)
-- returns {1, version now}, {0} it has changed, {-1} the lease is lost
-- A tool of a turn writes only while the turn holds its lease.
if ARGV[5] ~= '' and not holds_lease(KEYS[2], ARGV[4], ARGV[5]) then return {-1} end
local text, version = unpack(redis.call('HMGET', KEYS[1], 'text', 'v'))
if (version or '0') ~= ARGV[1] then
  -- The reply to the same write was lost.
  if text == ARGV[2] then return {1, version} end
  return {0}
end
-- A new version: every other writer that read the old one must read again.
version = set_memory(KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {1, version}
