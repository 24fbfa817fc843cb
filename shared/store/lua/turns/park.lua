#!lua flags=allow-oom
-- Parks a turn that waits for a person's approval. The question becomes a step of its ledger and a
-- line of its chat, and the lease ends, so that the turn holds no slot. It is due again when the
-- time for an answer is over. If the step holds this question already, the turn goes on waiting for
-- it.
-- KEYS   1 queue  2 leases  3 wake  4 session  5 ledger  6 log  7 live
-- ARGV   1 member  2 lease  3 step, counted from 1  4 record of the question, without its times
--        5 line that asks, without its times  6 how long an answer counts, in ms  7 the turn  8 id of the question  9 tool
--        10 cap of the ledger in bytes  11 keep the log ms  12 keep the session ms
-- returns 1 parked, 0 it was parked by this already, 2 nobody answered in time (the lease is kept), -1 the lease is
--         lost, -2 the ledger is full, -3 the turn was told to stop
local member, step, n, id = ARGV[1], ARGV[3], ARGV[7], ARGV[8]
local session, ledger = KEYS[4], KEYS[5]
-- Steps are numbered without gaps, so the length of the ledger is the number of the last step.
local now, have = now_ms(), redis.call('XLEN', ledger)
-- The question, if this step was written by an earlier call.
local there = have == tonumber(step) and redis.call('XRANGE', ledger, step .. '-0', step .. '-0')[1]
local asked = there and cmsgpack.unpack(field(there, 'm'))
-- Another entry stands there: this is not a repetition.
if asked and (asked.t ~= 'approval' or asked.id ~= id) then
  asked = nil
end
-- Without a lease, but parked with this question: an earlier call succeeded and its reply was lost.
if not holds_lease(KEYS[2], member, ARGV[2]) then
  return asked and not redis.call('HGET', KEYS[2], member) and 0 or -1
end
if not asked and have ~= tonumber(step) - 1 then
  -- As in ledger.lua: the server lost steps, and a successor begins where they really end.
  redis.call('HDEL', KEYS[2], member)
  redis.call('ZADD', KEYS[1], now, member)
  wake(KEYS[3])
  return -1
end
local fields = redis.call('HMGET', session, 'stop', 'cut')
-- Nobody would read the answer.
if fields[1] == n or (parse_count(fields[2]) or 0) > tonumber(n) then return -3 end
check_chat('stream', KEYS[6])
-- The wait is over: the turn goes on with its lease and hears that nobody answered.
if asked and now >= asked.expires_at then return 2 end
-- A turn that parks again for the same question waits until the first deadline.
local expires = asked and asked.expires_at or now + tonumber(ARGV[6])
-- The question becomes a step of the ledger and a line of the chat, with the server's times.
if not asked then
  local question, line = cmsgpack.unpack(ARGV[4]), cmsgpack.unpack(ARGV[5])
  question.at, question.expires_at = now, expires
  line.at, line.approval.expires_at = now, expires
  local record = cmsgpack.pack(question)
  -- As in ledger.lua: booked first, undone if the cap is reached.
  local size = count_up(session, 'ledger', #record)
  if size > tonumber(ARGV[10]) then
    redis.call('HINCRBY', session, 'ledger', -#record)
    return -2
  end
  redis.call('XADD', ledger, step .. '-0', 'm', record)
  -- `<state> <id> <expires ms> <step> <turn> <request> <tool>`, read by resolve_approval.
  redis.call('HSET', session, 'asked', table.concat({'open', id, integer(expires), step, n, '-', ARGV[9]}, ' '))
  -- The model answered, and whatever killed earlier attempts was not this message alone.
  redis.call('HDEL', session, 'crashes', 'spared', 'away')
  add_line(session, KEYS[6], KEYS[7], cmsgpack.pack(line), ARGV[11])
  redis.call('PEXPIRE', session, ARGV[12])
end
-- The lease ends here: a waiting turn holds no slot. It is due again when the time is over.
redis.call('HDEL', KEYS[2], member)
local head = redis.call('XRANGE', key('inbox', string.sub(member, 6)), '-', '+', 'COUNT', 1)[1]
requeue(KEYS[1], KEYS[3], session, member, head, expires, now)
return 1
