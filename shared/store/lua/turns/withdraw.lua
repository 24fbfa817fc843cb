#!lua flags=allow-oom
-- Withdraws a waiting message with which no turn has begun: it is withdrawn or answered, never
-- both.
-- KEYS   1 inbox  2 session  3 queue  4 leases  5 wake  6 log  7 live  8 ledger
-- ARGV   1 dedupe id  2 prefix of the seen hashes  3 days an id is remembered  4 member
--        5 line that says so  6 keep the session ms  7 keep the log ms
-- returns {1 withdrawn | 2 it was withdrawn before | 0 not known here | -1 it is being answered | -2 its turn is over,
--         its number}
local inbox, session, member = KEYS[1], KEYS[2], ARGV[4]
local now = now_ms()
-- The number of a message is known only from the answer to its delivery.
local first = seen_before(ARGV[2], tonumber(ARGV[3]), ARGV[1], now)
if not first then return {0, 0} end
local n, seq = string.match(first, '(%d+):(%d+)')
-- An earlier call did it.
if string.match(first, ':withdrawn$') then return {2, 0} end
-- It was never accepted: a command, or a rejected message.
if n == '0' then return {0, 0} end
-- No longer in the inbox: its turn is over.
if #redis.call('XRANGE', inbox, n .. '-0', n .. '-0') == 0 then return {-2, tonumber(n)} end
local head = string.match(redis.call('XRANGE', inbox, '-', '+', 'COUNT', 1)[1][1], '%d+')
-- It is part of the turn that runs.
for _, joined in ipairs(joined_messages(session, head)) do
  if joined == n then return {-1, tonumber(n)} end
end
-- A lease or a ledger at the head: a turn has begun with it.
if head == n and (redis.call('HGET', KEYS[4], member) or redis.call('EXISTS', KEYS[8]) == 1) then
  return {-1, tonumber(n)}
end
check_chat('stream', KEYS[6])
-- From here on no turn can begin with it.
redis.call('XDEL', inbox, n .. '-0')
if head == n then
  -- Counters of attempts belong to the withdrawn message; the next one starts without them.
  redis.call('HDEL', session, 'errors', 'crashes', 'spared', 'apart', 'tries', 'away', 'place', 'gap')
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
  remove_from_queue(KEYS[3], member)
  redis.call('HDEL', session, 'cut', 'person')
-- The next message may be of another person, or still in its merge window.
elseif head == n then
  requeue_next(KEYS[3], KEYS[5], session, member, redis.call('XRANGE', inbox, '-', '+', 'COUNT', 1)[1], now)
elseif redis.call('HGET', KEYS[4], member) then
  -- A turn runs and was told what waits behind it; its commit must read the inbox again.
  redis.call('HSET', session, 'gap', '1')
end
-- A repeated withdrawal, or a second delivery, finds this answer.
remember_seen(ARGV[2], tonumber(ARGV[3]), ARGV[1], now, '0:' .. seq .. ':withdrawn')
add_line(session, KEYS[6], KEYS[7], ARGV[5], ARGV[7])
redis.call('PEXPIRE', session, ARGV[6])
return {1, tonumber(n)}
