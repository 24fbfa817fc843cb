#!lua flags=allow-oom
-- durable
-- Parks a turn that waits for a person's approval, or for its program to run functions. The question
-- becomes a step of its ledger and a line of its chat, and the lease ends, so that the turn holds no
-- slot. It is due again when the time for an answer is over. If the step holds this question already,
-- the turn goes on waiting for it.
-- step       counted from 1
-- question   its record, without its times
-- line       the line that asks, without its times
-- wait_ms    how long an answer counts
-- n, id      the turn, and the id of the question
-- state      'open' = a person is asked about `tool`, 'calls' = a program; `tool` has the ids of the
--            calls
-- cap_bytes  of the ledger
-- returns 'parked', 'parked before' = by this, 'late' = nobody answered in time (the lease is
--         kept), 'lost', 'full' = the ledger is, 'stopped' = the turn was told to stop
local queue, leases, wake_list, session, ledger, outbox, live = unpack(KEYS)
local member, lease, step, question, line, wait_ms, n, id, state, tool, cap_bytes, keep_log_ms,
  keep_session_ms = unpack(ARGV)
-- Steps are numbered without gaps, so the length of the ledger is the number of the last step.
local now, have = now_ms(), redis.call('XLEN', ledger)
-- The question, if this step was written by an earlier call.
local there = have == tonumber(step) and redis.call('XRANGE', ledger, step .. '-0', step .. '-0')[1]
local asked = there and cmsgpack.unpack(field(there, 'm'))
-- Another entry stands there: this is not a repetition.
if asked and ((asked.t ~= 'approval' and asked.t ~= 'calls') or asked.id ~= id) then
  asked = nil
end
-- Without a lease, but parked with this question: an earlier call succeeded and its reply was lost.
if not holds_lease(leases, member, lease) then
  return asked and not redis.call('HGET', leases, member) and 'parked before' or 'lost'
end
if not asked and have ~= tonumber(step) - 1 then
  -- As in ledger.lua: the server lost steps, and a successor begins where they really end.
  redis.call('HDEL', leases, member)
  redis.call('ZADD', queue, now, member)
  wake(wake_list)
  return 'lost'
end
local fields = redis.call('HMGET', session, 'stop', 'cut')
-- Nobody would read the answer.
if fields[1] == n or (parse_count(fields[2]) or 0) > tonumber(n) then return 'stopped' end
check_chat('stream', outbox)
-- The wait is over: the turn goes on with its lease and hears that nobody answered.
if asked and now >= asked.expires_at then return 'late' end
-- A turn that parks again for the same question waits until the first deadline.
local expires = asked and asked.expires_at or now + tonumber(wait_ms)
-- The question becomes a step of the ledger and a line of the chat, with the server's times.
if not asked then
  question, line = cmsgpack.unpack(question), cmsgpack.unpack(line)
  question.at, question.expires_at = now, expires
  line.at, (line.approval or line.calls).expires_at = now, expires
  local record = cmsgpack.pack(question)
  -- As in ledger.lua: booked first, undone if the cap is reached.
  local size = count_up(session, 'ledger', #record)
  if size > tonumber(cap_bytes) then
    redis.call('HINCRBY', session, 'ledger', -#record)
    return 'full'
  end
  redis.call('XADD', ledger, step .. '-0', 'm', record)
  -- `<state> <id> <expires ms> <step> <turn> <request> <tool>`, read by resolve_approval, submit.lua
  -- and ingest.lua.
  redis.call('HSET', session, 'asked', table.concat({state, id, integer(expires), step, n, '-', tool}, ' '))
  -- The model answered, and whatever killed earlier attempts was not this message alone.
  redis.call('HDEL', session, 'crashes', 'spared', 'away', 'alone')
  local seq = add_line(session, outbox, live, cmsgpack.pack(line), keep_log_ms, nil, nil,
    state == 'open' and {'asks', 1})
  add_notice(string.sub(member, 6), n, seq, state == 'open' and 'approval ' .. id or 'calls ' .. tool)
  redis.call('PEXPIRE', session, keep_session_ms)
end
-- The lease ends here: a waiting turn holds no slot. It is due again when the time is over.
redis.call('HDEL', leases, member)
local head = redis.call('XRANGE', key('inbox', string.sub(member, 6)), '-', '+', 'COUNT', 1)[1]
requeue(queue, wake_list, session, member, head, expires, now)
return 'parked'
