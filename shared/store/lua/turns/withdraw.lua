#!lua flags=allow-oom
-- durable
-- Withdraws a waiting message with which no turn has begun: it is withdrawn or answered, never
-- both.
-- seen  prefix of the hashes of seen ids; they are remembered for this many days
-- line  the line that says so
-- returns 'withdrawn' (now or before), 'unknown' here, 'answering' = a turn has begun with it,
--         'over' = its turn is
local inbox, session, queue, leases, wake_list, outbox, live, ledger = unpack(KEYS)
local dedupe_id, seen, days, member, line, keep_session_ms, keep_log_ms = unpack(ARGV)
local now = now_ms()
-- The number of a message is known only from the answer to its delivery.
local first = seen_before(seen, tonumber(days), dedupe_id, now)
if not first then return 'unknown' end
local n, seq = string.match(first, '(%d+):(%d+)')
-- An earlier call did it.
if string.match(first, ':withdrawn$') then return 'withdrawn' end
-- It was never accepted: a command, or a rejected message.
if n == '0' then return 'unknown' end
-- No longer in the inbox: its turn is over.
if #redis.call('XRANGE', inbox, n .. '-0', n .. '-0') == 0 then return 'over' end
local head = string.match(redis.call('XRANGE', inbox, '-', '+', 'COUNT', 1)[1][1], '%d+')
-- It is part of the turn that runs.
for _, joined in ipairs(joined_messages(session, head)) do
  if joined == n then return 'answering' end
end
-- A lease or a ledger at the head: a turn has begun with it.
if head == n and (redis.call('HGET', leases, member) or redis.call('EXISTS', ledger) == 1) then
  return 'answering'
end
check_chat('stream', outbox)
-- From here on no turn can begin with it.
redis.call('XDEL', inbox, n .. '-0')
if head == n then
  -- Counters of attempts belong to the withdrawn message; the next one starts without them.
  redis.call('HDEL', session, 'errors', 'crashes', 'spared', 'apart', 'tries', 'away', 'alone', 'place', 'gap')
end
-- A stop that names a withdrawn message would otherwise stay in the session for ever.
if redis.call('HGET', session, 'stop') == n then
  redis.call('HDEL', session, 'stop')
end
if redis.call('HGET', session, 'cut') == n then
  -- Messages before it are answered after all, unless an older one interrupted, too: then that
  -- one's cut is in force again.
  redis.call('HDEL', session, 'cut')
  for _, older in ipairs(redis.call('XREVRANGE', inbox, '(' .. n .. '-0', '-')) do
    if field(older, 'c') then
      redis.call('HSET', session, 'cut', string.match(older[1], '%d+'))
      break
    end
  end
end
-- The last message is gone, and the session has nothing to do.
if redis.call('XLEN', inbox) == 0 then
  redis.call('DEL', inbox)
  remove_from_queue(queue, member)
  redis.call('HDEL', session, 'cut', 'person')
-- The next message may be of another person, or still in its merge window.
elseif head == n then
  requeue_next(queue, wake_list, session, member, redis.call('XRANGE', inbox, '-', '+', 'COUNT', 1)[1], now)
elseif redis.call('HGET', leases, member) then
  -- A turn runs and was told what waits behind it; its commit must read the inbox again.
  redis.call('HSET', session, 'gap', '1')
end
-- A repeated withdrawal, or a second delivery, finds this answer.
remember_seen(seen, tonumber(days), dedupe_id, now, '0:' .. seq .. ':withdrawn')
local line_seq = add_line(session, outbox, live, line, keep_log_ms, nil, nil, false)
add_notice(key_id(session), n, line_seq, 'withdrawn')
-- Other messages may still wait here, or be answered.
add_own_line_fact(session, line_seq, 'running', redis.call('EXISTS', inbox))
redis.call('PEXPIRE', session, keep_session_ms)
return 'withdrawn'
