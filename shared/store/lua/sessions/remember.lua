#!lua flags=allow-oom
-- durable
-- Writes a MEMORY.md if nobody changed it since it was read. The same write again changes nothing.
-- version  that it was made from
-- lease    '' = no turn writes this
-- sources  what marks who writes it, and from now on this memory
-- returns {'written', version now} | {'changed'} | {'lost'}
local memory, leases = unpack(KEYS)
local version, text, keep_ms, member, lease, sources = unpack(ARGV)
-- A tool of a turn writes only while the turn holds its lease.
if lease ~= '' and not holds_lease(leases, member, lease) then return {'lost'} end
local has, now = unpack(redis.call('HMGET', memory, 'text', 'v'))
if (now or '0') ~= version then
  -- The reply to the same write was lost.
  if has == text then return {'written', now} end
  return {'changed'}
end
-- A new version: every other writer that read the old one must read again.
version = set_memory(memory, text)
-- Whoever loads this memory has read them, too.
add_sources(memory, 'sources', sources)
redis.call('PEXPIRE', memory, keep_ms)
return {'written', version}
