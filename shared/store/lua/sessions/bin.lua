#!lua flags=allow-oom
-- durable
-- Marks a session for deletion, or takes that back in time.
-- name      the session
-- delay_ms  delete it after this time ('' = take it back)
-- returns 1 done, 0 it cannot be taken back any more
local EPHEMERAL, session = unpack(KEYS)
local name, delay_ms = unpack(ARGV)
if delay_ms ~= '' then
  redis.call('ZADD', EPHEMERAL, integer(now_ms() + tonumber(delay_ms)), name)
  add_fact(name, 'deleted', 1)
  return 1
end
local due = redis.call('ZSCORE', EPHEMERAL, name)
-- Not marked: taken back before, or deleted.
if not due then return redis.call('EXISTS', session) end
-- A worker may be deleting at this moment what is due.
if tonumber(due) <= now_ms() then return 0 end
add_fact(name, 'row', 1)
return redis.call('ZREM', EPHEMERAL, name)
