-- Subagents of a session.
--
-- Slots of subagents have become free: makes those that wait longest, in the session and in the
-- whole fleet, due again.
local function wake_waiting_subagents(name, freed, now)
  for _, waiting in ipairs({key('children', name), PREFIX .. 'subagents'}) do
    -- A positive score is the time since when one waits for a slot; 0 means that it has one. Four
    -- at least, because some of the first may be held back by the other cap.
    for _, next in ipairs(guarded('ZRANGEBYSCORE', waiting, '(0', '+inf', 'LIMIT', 0, math.max(4, freed)) or {}) do
      guarded('ZADD', PREFIX .. 'queue:jobs', 'XX', now, 'sub:' .. next)
      wake(SUBAGENT_WAKE)
    end
  end
end

-- Key of a subagent as arq's tools know it, as a job of the queue that they list.
local function arq_job(id)
  return 'arq:job:sub:' .. id
end

-- Writes the record that arq's tools read of a queued subagent; workers never read it.
local function describe_subagent(id)
  -- msgpack by hand, because Lua cannot tell an empty map from an empty list:
  -- {t: 1, f: "run_subagent", a: [id], k: {}, et: now}
  local job = '\133\161t\1\161f\172run_subagent\161a\145' .. cmsgpack.pack(id)
  job = job .. '\161k\128\162et' .. cmsgpack.pack(now_ms())
  -- It expires in a week, in case a release that does not know it ends the subagent.
  redis.call('SET', arq_job(id), job, 'PX', 604800000)
end

-- Takes a subagent out of all queues and lists. Its record stays for an hour, for late questions.
local function end_subagent(id, name, outcome, now)
  local child, children, member = key('child', id), key('children', name), 'sub:' .. id
  guarded('ZREM', PREFIX .. 'queue:jobs', member)
  guarded('HDEL', PREFIX .. 'leases:jobs', member)
  redis.call('DEL', key('ledger', id), arq_job(id))
  guarded('ZREM', PREFIX .. 'subagents', id)
  redis.call('HSET', child, 'state', outcome, 'ended', integer(now))
  -- Counters of its attempts mean nothing any more.
  redis.call('HDEL', child, 'errors', 'crashes', 'spared', 'apart', 'tries', 'away', 'alone', 'ledger')
  redis.call('PEXPIRE', child, 3600000)
  -- Ended ones have minus their end as score: those of more than an hour ago leave the list.
  redis.call('ZREMRANGEBYSCORE', children, integer(3600000 - now), '(0')
  redis.call('ZADD', children, integer(-now), id)
  -- 100 ended ones are kept per session; a session that spawns many would grow without bound.
  for _, old in ipairs(redis.call('ZRANGEBYSCORE', children, '-inf', '(0', 'LIMIT', 100, 10)) do
    redis.call('DEL', key('child', old))
    redis.call('ZREM', children, old)
  end
  -- The last running one has ended, so the list itself may expire.
  if redis.call('ZCOUNT', children, 0, '+inf') == 0 then
    redis.call('PEXPIRE', children, 3600000)
  end
end

-- Ends subagents of a session without a report to its chat: all, those of one turn, or one ('' =
-- any). Returns how many. A worker that runs one loses its lease and can write nothing more.
local function cancel_subagents(name, turn, only)
  local now, ended = now_ms(), 0
  for _, id in ipairs(guarded('ZRANGEBYSCORE', key('children', name), 0, '+inf') or {}) do
    local turn_of = guarded('HGET', key('child', id), 'turn')
    if (turn == '' or turn == turn_of) and (only == '' or only == id) then
      -- The message only hurries the worker; deleting the lease is what stops its writes.
      redis.call('PUBLISH', PREFIX .. 'control', 'sub:' .. id .. ' 1')
      end_subagent(id, name, 'cancelled', now)
      ended = ended + 1
    end
  end
  if ended > 0 then
    wake_waiting_subagents(name, ended, now)
  end
  return ended
end

-- Cancels every subagent of a session and deletes all records of them; returns how many keys went.
local function drop_subagents(name)
  cancel_subagents(name, '', '')
  local removed = 0
  for _, id in ipairs(guarded('ZRANGE', key('children', name), 0, -1) or {}) do
    removed = removed + redis.call('DEL', key('child', id))
  end
  return removed + redis.call('DEL', key('children', name))
end
