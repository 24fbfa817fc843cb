#!lua flags=allow-oom
-- Stores the newest line that a person has seen. Never goes back, never beyond the log, and never
-- creates a session.
-- returns the number that is now remembered
local session = unpack(KEYS)
local seen = unpack(ARGV)
local log, acked = unpack(redis.call('HMGET', session, 'log', 'acked'))
-- A page may acknowledge lines that it got from a copy of the log that the server lost.
local seq = math.min(tonumber(seen), tonumber(log or 0))
-- Several devices acknowledge independently: the highest number counts.
if seq > tonumber(acked or 0) then
  redis.call('HSET', session, 'acked', seq)
  -- What was read on the phone is read on the desktop.
  add_fact(key_id(session), 'seen', integer(seq))
  return seq
end
return tonumber(acked or 0)
