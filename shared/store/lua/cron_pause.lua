#!lua flags=allow-oom
-- Let a chat's schedules rest, or go on.
-- KEYS   1 due times  2 the chat's schedules
-- ARGV   1 session  2 ms after which those that still rest are over ('' = go on)
-- returns how many
local rests = redis.call('HGET', KEYS[2], ':paused')
if (ARGV[2] == '') == not rests then return 0 end
local many = 0
local over = ARGV[2] ~= '' and integer(now_ms() + tonumber(ARGV[2]))
for _, id in ipairs(redis.call('HKEYS', KEYS[2])) do
  if not string.find(id, ':') then
    many = many + 1
    local tick = redis.call('HGET', KEYS[2], id .. ':tick')
    redis.call('ZADD', KEYS[1], over or tick, id .. ':' .. ARGV[1])
  end
end
if not over then
  redis.call('HDEL', KEYS[2], ':paused')
elseif many > 0 then
  redis.call('HSET', KEYS[2], ':paused', over)
end
return many
