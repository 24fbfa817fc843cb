-- Steps of a running turn or subagent.
--
-- Tells why a step of a turn is not to be written: 'lost' the lease is, 'known' it was written
-- before
-- and the reply was lost; nil when it may be. The fence comes first: a worker that lost its lease
-- must
-- not write a step.
local function step_refusal(leases, ledger, queue, wake_list, member, lease, step)
  if not holds_lease(leases, member, lease) then return 'lost' end
  -- Steps are numbered without gaps, so the length of the ledger is the number of the last step.
  local have = redis.call('XLEN', ledger)
  if have >= tonumber(step) then return 'known' end
  if have < tonumber(step) - 1 then
    -- The server lost steps that it had confirmed. A ledger with a hole would mislead the next
    -- worker, so the lease ends: a successor begins at once, where the ledger really ends.
    redis.call('HDEL', leases, member)
    redis.call('ZADD', queue, now_ms(), member)
    wake_for(member, wake_list)
    return 'lost'
  end
end

-- Writes a step that is not refused; returns false when the ledger would have more than `cap`
-- bytes.
-- `more` bytes of its effect count, too.
local function write_step(session, ledger, step, record, cap, more)
  local weight = #record + more
  -- Book first, undo if it was too much: two steps never race, because a script runs alone.
  if count_up(session, 'ledger', weight) > tonumber(cap) then
    redis.call('HINCRBY', session, 'ledger', -weight)
    return false
  end
  redis.call('XADD', ledger, step .. '-0', 'm', record)
  -- Progress was made: whatever killed earlier attempts was not this message alone.
  redis.call('HDEL', session, 'crashes', 'spared')
  return true
end
