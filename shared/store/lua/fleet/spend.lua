#!lua flags=allow-oom
-- Adds what a chat used to the totals of its day (UTC), and to its person's; with nothing to add it
-- only reads those of the chat.
-- name         the session
-- person       who used it
-- micros       micro-dollars
-- warn_tokens  from this total on its person is told (0 = never); warn_micros likewise
-- returns {day, tokens, micro-dollars, 1 = its person is to be told now, once a day}
local name, person, tokens, micros, warn_tokens, warn_micros = unpack(ARGV)
-- The server's day, so that all workers count alike.
local day = math.floor(now_ms() / 86400000)
local spent = key('spent', name) .. ':' .. day
if tokens == '0' and micros == '0' then
  local found = redis.call('HMGET', spent, 'tokens', 'micros')
  return {day, tonumber(found[1]) or 0, tonumber(found[2]) or 0, 0}
end
-- The days of the person are for display: a broken record of them must not end the script.
local used = key('used', person)
local today = integer(day)
if guarded('HEXISTS', used, today .. ':t') == 0 then
  -- The first call of a day forgets days that are in no month that is shown.
  for _, field in ipairs(guarded('HKEYS', used) or {}) do
    if (tonumber(string.match(field, '^%d+')) or 0) < day - 62 then redis.call('HDEL', used, field) end
  end
end
guarded('HINCRBY', used, today .. ':t', tokens)
guarded('HINCRBY', used, today .. ':m', micros)
guarded('EXPIRE', used, 62 * 86400)
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
