#!lua
-- Take a message into its session's inbox, once, and make the session due.
-- KEYS   1 inbox  2 session  3 queue  4 wake  5 log  6 live  7 chats ('' = the channel keeps no list)
-- ARGV   1 record  2 schema version  3 dedupe id  4 prefix of the seen hashes  5 days an id is remembered
--        6 member  7 inbox cap  8 cap of waiting sessions  9 keep the session ms  10 keep the log ms
--        11 line for the chat's log ('' = none)  12 chat id  13 title
-- returns {1 taken | 0 known | -1 inbox full | -2 too many sessions, n, ahead, seq}
local inbox, session, queue = KEYS[1], KEYS[2], KEYS[3]
local id, prefix, days, member = ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6]

local now = now_ms()
local today = math.floor(now / 86400000)

local function ahead_of(n)
  return #redis.call('XRANGE', inbox, '-', '(' .. n .. '-0')
end

for day = today, today - days, -1 do
  local first = redis.call('HGET', prefix .. day, id)
  if first then
    local n, seq = string.match(first, '(%d+):(%d+)')
    return {0, tonumber(n), ahead_of(n), tonumber(seq)}
  end
end
local waiting = redis.call('XLEN', inbox)
if waiting >= tonumber(ARGV[7]) then
  return {-1, 0, waiting, 0}
end
if waiting == 0 and redis.call('ZCARD', queue) >= tonumber(ARGV[8]) then
  return {-2, 0, 0, 0}
end

local n = redis.call('HINCRBY', session, 'n', 1)
redis.call('XADD', inbox, n .. '-0', 'v', ARGV[2], 'm', ARGV[1])
local seq = 0
if ARGV[11] ~= '' then
  seq = add_line(session, KEYS[5], KEYS[6], ARGV[11], ARGV[10])
end
if KEYS[7] ~= '' then
  redis.call('HSETNX', session, 'title', ARGV[13])
  redis.call('ZADD', KEYS[7], now, ARGV[12])
  redis.call('ZREMRANGEBYRANK', KEYS[7], 0, -1001)
  redis.call('PEXPIRE', KEYS[7], ARGV[9])
end
redis.call('PEXPIRE', session, ARGV[9])
redis.call('HSET', prefix .. today, id, n .. ':' .. seq)
redis.call('EXPIRE', prefix .. today, (days + 1) * 86400)
if redis.call('ZADD', queue, 'NX', now, member) == 1 then
  wake(KEYS[4])
end
return {1, n, waiting, seq}
