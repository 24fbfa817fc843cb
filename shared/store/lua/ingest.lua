#!lua
-- Take a message into its session's inbox, once, and make the session due.
-- KEYS   1 inbox  2 session  3 queue  4 wake  5 log  6 live  7 chats ('' = the channel keeps no list)
-- ARGV   1 record  2 schema version  3 dedupe id  4 prefix of the seen hashes  5 days an id is remembered
--        6 member  7 inbox cap  8 cap of waiting sessions  9 keep the session ms  10 keep the log ms
--        11 line for the chat's log ('' = none)  12 chat id  13 title
--        14 memory scope ('' = the chat's own)
-- returns {1 taken | 0 known | -1 inbox full | -2 too many sessions, n, ahead, seq}
local inbox, session, queue = KEYS[1], KEYS[2], KEYS[3]
local id, prefix, days, member = ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6]

local now = now_ms()
local function ahead_of(n)
  if n == '0' then return 0 end  -- it was a command
  return #redis.call('XRANGE', inbox, '-', '(' .. n .. '-0')
end

local first = seen_before(prefix, days, id, now)
if first then
  local n, seq = string.match(first, '(%d+):(%d+)')
  return {0, tonumber(n), ahead_of(n), tonumber(seq)}
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
  list_chat(session, KEYS[7], ARGV[12], ARGV[13], ARGV[9], now)
end
if ARGV[14] ~= '' then
  redis.call('HSET', session, 'scope', ARGV[14])
else
  redis.call('HDEL', session, 'scope')
end
redis.call('PEXPIRE', session, ARGV[9])
note_seen(prefix, days, id, now, n .. ':' .. seq)
if redis.call('ZADD', queue, 'NX', now, member) == 1 then
  wake(KEYS[4])
end
return {1, n, waiting, seq}
