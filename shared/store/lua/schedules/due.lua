#!lua flags=allow-oom
-- Reads the schedules that are due, the longest waiting first, and when the next one is. Entries
-- whose schedule no longer exists are removed.
-- at  the time in ms ('' = the server's)
-- returns {time, ms until the next one that is not among these (-1 = there is none), {member, due,
--         tick, record}, ..}
local SCHEDULES = unpack(KEYS)
local most, at = unpack(ARGV)
-- Tests give a time; otherwise the server's clock counts.
local now = at == '' and now_ms() or tonumber(at)
local found = redis.call('ZRANGEBYSCORE', SCHEDULES, '-inf', integer(now), 'WITHSCORES', 'LIMIT', 0, most)
local answer = {integer(now), '-1'}
-- Members are `<schedule>:<session>`; a session has colons of its own.
for i = 1, #found, 2 do
  local id, name = string.match(found[i], '^([^:]*):(.*)$')
  local all = id and key('cron', name) or ''
  local fields = id and redis.pcall('HMGET', all, id, id .. ':tick') or {}
  if fields.err then
    -- A broken key of one chat must not block the others: tried again in a minute.
    redis.call('ZADD', SCHEDULES, integer(now + 60000), found[i])
  elseif fields[1] and fields[2] then
    answer[#answer + 1] = {found[i], found[i + 1], fields[2], fields[1]}
  else
    -- The schedule is gone, its entry was left.
    redis.call('ZREM', SCHEDULES, found[i])
  end
end
-- So that a worker can sleep until then.
local later = redis.call('ZRANGEBYSCORE', SCHEDULES, '(' .. integer(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
if later[2] then
  answer[2] = integer(math.max(0, tonumber(later[2]) - now))
end
return answer
