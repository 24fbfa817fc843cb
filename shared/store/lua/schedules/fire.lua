#!lua
-- Runs one tick of a schedule, if it is still the tick that was read. In one step its message comes
-- into the inbox, once, and the schedule moves to its next tick. Without a message it only moves.
-- KEYS   1 due times  2 the chat's schedules  3 inbox  4 session  5 queue  6 wake  7 the owner's list of chats
-- ARGV   1 id  2 session  3 the tick  4 its due time as it was seen  5 the next tick ('' = there is none: it is over)
--        6 when to run that  7 how many ticks are passed over  8 record ('' = none)  9 schema version
--        10 dedupe id  11 prefix of the seen hashes  12 days an id is remembered  13 member  14 cap of waiting sessions
--        15 cap of the chat's waiting ticks  16 keep the session ms  17 chat id
--        18 '1' = pass this tick over while its last one waits for an answer, else put it off
--        19 put off by ms  20 the time in ms ('' = the server's)  21 fair key, as in ingest.lua
-- returns {1 a message is in the inbox | 2 moved on without one | 0 it was another's, or is gone
--         | -1 its last tick still waits: put off | -2 the same, and this one is passed over
--         | -3 the chat or the fleet is busy: put off | -4 the chat was paused for too long: it is over, n}
local due, all, inbox, session, queue = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, name, tick = ARGV[1], ARGV[2], ARGV[3]
local entry = id .. ':' .. name
-- Another worker may have moved the schedule since it was read: both times must match.
local at = redis.call('ZSCORE', due, entry)
if not at or tonumber(at) ~= tonumber(ARGV[4]) or redis.call('HGET', all, id .. ':tick') ~= tick then return {0, 0} end
local now = ARGV[20] == '' and now_ms() or tonumber(ARGV[20])

-- Leaves the tick where it is and looks again later.
local function put_off(code)
  redis.call('ZADD', due, now + tonumber(ARGV[19]), entry)
  return {code, 0}
end

-- Moves to the next tick, or ends the schedule after its last one.
local function move_on(missed)
  if ARGV[5] == '' then
    drop_schedule(name, id)
    return
  end
  redis.call('HSET', all, id .. ':tick', ARGV[5])
  redis.call('ZADD', due, ARGV[6], entry)
  if missed > 0 then
    redis.call('HINCRBY', all, id .. ':missed', missed)
  end
end
-- A paused schedule comes due only when the pause has lasted too long.
if redis.call('HGET', all, ':paused') then
  drop_schedule(name, id)
  return {-4, 0}
end
local missed = tonumber(ARGV[7])
-- No message was asked for, or it was sent by a call whose reply was lost.
if ARGV[8] == '' or seen_before(ARGV[11], tonumber(ARGV[12]), ARGV[10], now) then
  move_on(missed)
  return {2, 0}
end
-- `<id>=<n>` of the ticks of this chat that nobody has answered yet.
local waiting, own = {}, false
-- Only those still in the inbox wait for an answer.
for of, n in string.gmatch(redis.call('HGET', all, ':waiting') or '', '(%S+)=(%d+)') do
  if #redis.call('XRANGE', inbox, n .. '-0', n .. '-0') > 0 then
    waiting[#waiting + 1] = of .. '=' .. n
    own = own or of == id
  end
end
-- The last tick of the same schedule still waits: skip this one, or put it off.
if own and ARGV[18] == '1' then
  move_on(missed + 1)
  return {-2, 0}
elseif own then
  return put_off(-1)
-- Scheduled work is the first to step back when the chat or the fleet is busy.
elseif #waiting >= tonumber(ARGV[15])
    or (redis.call('EXISTS', inbox) == 0
      and redis.call('ZCARD', queue) + (guarded('ZCARD', BACKGROUND) or 0) >= tonumber(ARGV[14])) then
  return put_off(-3)
end
check_chat('stream', inbox)
check_fleet('zset', queue)
local counters = redis.call('HMGET', session, 'n', 'log')
local counter = parse_count(counters[1]) or (not counters[1] and counters[2] and 0) or nil
-- From here on the message exists; the following writes are one step with it.
local n = append(name, inbox, counter, 'v', ARGV[9], 'm', ARGV[8], 'p', ARGV[21])
redis.call('HSET', session, 'n', n)
-- XX: a chat that its person removed from the list does not come back by itself.
guarded('ZADD', KEYS[7], 'XX', now, ARGV[17])
redis.call('PEXPIRE', session, ARGV[16])
remember_seen(ARGV[11], tonumber(ARGV[12]), ARGV[10], now, n .. ':0')
waiting[#waiting + 1] = id .. '=' .. n
redis.call('HSET', all, ':waiting', table.concat(waiting, ' '), id .. ':last', tick)
redis.call('HINCRBY', all, id .. ':runs', 1)
move_on(missed)
-- The time of the queue is always the server's, also when a test gave another one.
local at_once = now_ms()
enqueue(queue, KEYS[6], session, ARGV[13], n, ARGV[21], redis.call('XLEN', inbox) > 1, at_once, at_once)
return {1, n}
