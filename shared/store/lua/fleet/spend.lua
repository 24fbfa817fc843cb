#!lua flags=allow-oom
-- Adds what a chat used to the totals of its day (UTC); with nothing to add it only reads them.
-- name         the session
-- micros       micro-dollars
-- warn_tokens  from this total on its person is told (0 = never); warn_micros likewise
-- returns {day, tokens, micro-dollars, 1 = its person is to be told now, once a day}
local name, tokens, micros, warn_tokens, warn_micros = unpack(ARGV)
-- The server's day, so that all workers count alike.
local day = math.floor(now_ms() / 86400000)
local spent = key('spent', name) .. ':' .. day
if tokens == '0' and micros == '0' then
  local found = redis.call('HMGET', spent, 'tokens', 'micros')
  return {day, tonumber(found[1]) or 0, tonumber(found[2]) or 0, 0}
end
local tokens = redis.call('HINCRBY', spent, 'tokens', tokens)
local micros = redis.call('HINCRBY', spent, 'micros', micros)
-- Today's and yesterday's totals are kept.
redis.call('EXPIRE', spent, 2 * 86400)
-- A limit of 0 never warns.
local function reached(used, limit)
  return tonumber(limit) > 0 and used >= tonumber(limit)
end
local warn = 0
if reached(tokens, warn_tokens) or reached(micros, warn_micros) then
  -- HSETNX: only the first call of the day that reaches it warns.
  warn = redis.call('HSETNX', spent, 'told', 1)
end
return {day, tokens, micros, warn}
