#!lua flags=allow-oom
-- Take back a message that waits and that no turn has begun with: it is withdrawn or answered, never both.
-- KEYS   1 inbox  2 session  3 queue  4 leases  5 wake  6 log  7 live  8 ledger
-- ARGV   1 dedupe id  2 prefix of the seen hashes  3 days an id is remembered  4 member
--        5 line that says so  6 keep the session ms  7 keep the log ms
-- returns {1 withdrawn | 2 it was withdrawn before | 0 not known here | -1 it is being answered | -2 its turn is over,
--         its number}
local inbox, session, member = KEYS[1], KEYS[2], ARGV[4]
local now = now_ms()
local first = seen_before(ARGV[2], tonumber(ARGV[3]), ARGV[1], now)
if not first then return {0, 0} end
local n, seq = string.match(first, '(%d+):(%d+)')
if string.match(first, ':withdrawn$') then return {2, 0} end
if n == '0' then return {0, 0} end

if #redis.call('XRANGE', inbox, n .. '-0', n .. '-0') == 0 then return {-2, tonumber(n)} end
local head = string.match(redis.call('XRANGE', inbox, '-', '+', 'COUNT', 1)[1][1], '%d+')
for _, joined in ipairs(taken_by(session, head)) do
  if joined == n then return {-1, tonumber(n)} end
end
if head == n and (redis.call('HGET', KEYS[4], member) or redis.call('EXISTS', KEYS[8]) == 1) then
  return {-1, tonumber(n)}
end

redis.call('XDEL', inbox, n .. '-0')
if head == n then
  -- What was counted for it, the next one does not pay for.
  redis.call('HDEL', session, 'errors', 'crashes', 'spared', 'apart', 'tries', 'away', 'place', 'gap')
end
if redis.call('HGET', session, 'stop') == n then
  redis.call('HDEL', session, 'stop')
end
if redis.call('HGET', session, 'cut') == n then
  -- What waits before it is answered after all, but for what an older one that interrupts has ended.
  redis.call('HDEL', session, 'cut')
  for _, older in ipairs(redis.call('XREVRANGE', inbox, '(' .. n .. '-0', '-')) do
    if field(older, 'c') then
      redis.call('HSET', session, 'cut', string.match(older[1], '%d+'))
      break
    end
  end
end
if redis.call('XLEN', inbox) == 0 then
  redis.call('DEL', inbox)
  leave_queue(KEYS[3], member)
  redis.call('HDEL', session, 'cut', 'person')
elseif head == n then
  line_up_next(KEYS[3], KEYS[5], session, member, redis.call('XRANGE', inbox, '-', '+', 'COUNT', 1)[1], now)
elseif redis.call('HGET', KEYS[4], member) then
  -- The turn that runs was told what waits behind it.
  redis.call('HSET', session, 'gap', '1')
end
note_seen(ARGV[2], tonumber(ARGV[3]), ARGV[1], now, '0:' .. seq .. ':withdrawn')
add_line(session, KEYS[6], KEYS[7], ARGV[5], ARGV[7])
redis.call('PEXPIRE', session, ARGV[6])
return {1, tonumber(n)}
