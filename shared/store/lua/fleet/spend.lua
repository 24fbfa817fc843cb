#!lua flags=allow-oom
-- Adds what a chat used to the totals of its day (UTC); with nothing to add it only reads them.
-- ARGV   1 session  2 tokens  3 micro-dollars  4 5 the same from which its person is told (0 = never)
-- returns {day, tokens, micro-dollars, 1 = its person is to be told now, once a day}
-- The server's day, so that all workers count alike.
local day = math.floor(now_ms() / 86400000)
local spent = key('spent', ARGV[1]) .. ':' .. day
if ARGV[2] == '0' and ARGV[3] == '0' then
  local found = redis.call('HMGET', spent, 'tokens', 'micros')
  return {day, tonumber(found[1]) or 0, tonumber(found[2]) or 0, 0}
end
local tokens = redis.call('HINCRBY', spent, 'tokens', ARGV[2])
local micros = redis.call('HINCRBY', spent, 'micros', ARGV[3])
-- Today's and yesterday's totals are kept.
redis.call('EXPIRE', spent, 2 * 86400)
-- A limit of 0 never warns.
local function reached(used, limit)
  return tonumber(limit) > 0 and used >= tonumber(limit)
end
local warn = 0
if reached(tokens, ARGV[4]) or reached(micros, ARGV[5]) then
  -- HSETNX: only the first call of the day that reaches it warns.
  warn = redis.call('HSETNX', spent, 'told', 1)
end
return {day, tokens, micros, warn}
