#!lua flags=allow-oom
-- Remember the newest line a person has seen. Never goes back, never beyond the log, makes no session.
-- KEYS   1 session
-- ARGV   1 seq
-- returns the number that is now remembered
local log, acked = unpack(redis.call('HMGET', KEYS[1], 'log', 'acked'))
local seq = math.min(tonumber(ARGV[1]), tonumber(log or 0))
if seq > tonumber(acked or 0) then
  redis.call('HSET', KEYS[1], 'acked', seq)
  return seq
end
return tonumber(acked or 0)
