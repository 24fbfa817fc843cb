#!lua flags=allow-oom
-- The schedules whose time has come, the longest waiting first, and when the next one's comes. What nothing is known of
-- any more is taken out.
-- KEYS   1 due times
-- ARGV   1 how many  2 the time in ms ('' = the server's)
-- returns {time, ms until the next one that is not among these (-1 = there is none), {member, due, tick, record}, ..}
local now = ARGV[2] == '' and now_ms() or tonumber(ARGV[2])
local found = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', integer(now), 'WITHSCORES', 'LIMIT', 0, ARGV[1])
local answer = {integer(now), '-1'}
for i = 1, #found, 2 do
  local id, name = string.match(found[i], '^([^:]*):(.*)$')
  local all = id and key('cron', name) or ''
  local told = id and redis.pcall('HMGET', all, id, id .. ':tick') or {}
  if told.err then
    -- One chat with a broken key must not stand in everybody's way.
    redis.call('ZADD', KEYS[1], integer(now + 60000), found[i])
  elseif told[1] and told[2] then
    answer[#answer + 1] = {found[i], found[i + 1], told[2], told[1]}
  else
    redis.call('ZREM', KEYS[1], found[i])
  end
end
local behind = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. integer(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
if behind[2] then
  answer[2] = integer(math.max(0, tonumber(behind[2]) - now))
end
return answer
