#!lua
-- durable
-- Runs one tick of a schedule, if it is still the tick that was read. In one step its message comes
-- into the inbox, once, and the schedule moves to its next tick. Without a message it only moves.
-- chats         the owner's list
-- name          the session
-- due_ms        the due time of the tick, as it was seen
-- next_tick     '' = there is none: it is over
-- next_due_ms   when to run that
-- missed        how many ticks are passed over
-- record        of the message ('' = none), and the schema version of it
-- seen          prefix of the hashes of seen ids; they are remembered for this many days
-- sessions_cap  sessions that may wait
-- most_waiting  ticks of the chat that may wait
-- skip_busy     '1' = pass this tick over while its last one waits for an answer, else put it off
-- delay_ms      by which it is put off
-- at            the time in ms ('' = the server's)
-- person        fair key, as in ingest.lua
-- returns 'fired' = a message is in the inbox, 'moved' on without one, 'lost' = it was another's,
--         or is gone, 'busy' = its last tick still waits: put off, 'skipped' = the same, and this
--         one is passed over, 'crowded' = the chat or the fleet is busy: put off, 'over' = the chat
--         was paused for too long
local SCHEDULES, schedules, inbox, session, queue, wake_list, chats = unpack(KEYS)
local id, name, tick, due_ms, next_tick, next_due_ms, missed, record, version, dedupe_id, seen,
  days, member, sessions_cap, most_waiting, keep_session_ms, chat_id, skip_busy, delay_ms, at,
  person = unpack(ARGV)
local entry = id .. ':' .. name
-- Another worker may have moved the schedule since it was read: both times must match.
local score = redis.call('ZSCORE', SCHEDULES, entry)
if not score or tonumber(score) ~= tonumber(due_ms) or redis.call('HGET', schedules, id .. ':tick') ~= tick then return 'lost' end
local now = at == '' and now_ms() or tonumber(at)

-- Leaves the tick where it is and looks again later.
local function put_off(code)
  redis.call('ZADD', SCHEDULES, now + tonumber(delay_ms), entry)
  return code
end

-- Moves to the next tick, or ends the schedule after its last one.
local function move_on(missed)
  if next_tick == '' then
    drop_schedule(name, id)
    return
  end
  redis.call('HSET', schedules, id .. ':tick', next_tick)
  redis.call('ZADD', SCHEDULES, next_due_ms, entry)
  if missed > 0 then
    redis.call('HINCRBY', schedules, id .. ':missed', missed)
  end
end
-- A paused schedule comes due only when the pause has lasted too long.
if redis.call('HGET', schedules, ':paused') then
  drop_schedule(name, id)
  return 'over'
end
local missed = tonumber(missed)
-- No message was asked for, or it was sent by a call whose reply was lost.
if record == '' or seen_before(seen, tonumber(days), dedupe_id, now) then
  move_on(missed)
  return 'moved'
end
-- `<id>=<n>` of the ticks of this chat that nobody has answered yet.
local waiting, own = {}, false
-- Only those still in the inbox wait for an answer.
for of, n in string.gmatch(redis.call('HGET', schedules, ':waiting') or '', '(%S+)=(%d+)') do
  if #redis.call('XRANGE', inbox, n .. '-0', n .. '-0') > 0 then
    waiting[#waiting + 1] = of .. '=' .. n
    own = own or of == id
  end
end
-- The last tick of the same schedule still waits: skip this one, or put it off.
if own and skip_busy == '1' then
  move_on(missed + 1)
  return 'skipped'
elseif own then
  return put_off('busy')
-- Scheduled work is the first to step back when the chat or the fleet is busy.
elseif #waiting >= tonumber(most_waiting)
    or (redis.call('EXISTS', inbox) == 0
      and redis.call('ZCARD', queue) + (guarded('ZCARD', BACKGROUND) or 0) >= tonumber(sessions_cap)) then
  return put_off('crowded')
end
check_chat('stream', inbox)
check_fleet('zset', queue)
local counters = redis.call('HMGET', session, 'n', 'log')
local counter = parse_count(counters[1]) or (not counters[1] and counters[2] and 0) or nil
-- From here on the message exists; the following writes are one step with it.
local n = append(name, inbox, counter, 'v', version, 'm', record, 'p', person)
redis.call('HSET', session, 'n', n)
add_fact(name, 'at', integer(now), 'running', 1)
-- XX: a chat that its person removed from the list does not come back by itself.
guarded('ZADD', chats, 'XX', now, chat_id)
redis.call('PEXPIRE', session, keep_session_ms)
remember_seen(seen, tonumber(days), dedupe_id, now, n .. ':0')
waiting[#waiting + 1] = id .. '=' .. n
redis.call('HSET', schedules, ':waiting', table.concat(waiting, ' '), id .. ':last', tick)
redis.call('HINCRBY', schedules, id .. ':runs', 1)
move_on(missed)
-- The time of the queue is always the server's, also when a test gave another one.
local at_once = now_ms()
enqueue(queue, wake_list, session, member, n, person, redis.call('XLEN', inbox) > 1, at_once, at_once)
return 'fired'
