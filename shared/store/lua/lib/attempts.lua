-- What earlier attempts at a piece of work left.
--
-- Counts that the owner of a turn or subagent died. From its second crash on the work runs
-- isolated,
-- in a child of its worker, and most likely did not kill the worker itself: such deaths are counted
-- in field `spared`, and `effective_crashes` counts three of them as one.
local function count_crash(record)
  local isolated = (tonumber(redis.call('HGET', record, 'crashes') or 0) or 0) >= 2
  count_up(record, isolated and 'spared' or 'crashes', 1)
end

-- Adds up both counters as a decimal string: every direct crash, and a third of the isolated ones.
local function effective_crashes(crashes, isolated_crashes)
  -- The usual case: no counter exists, and nothing needs to be computed.
  if not crashes and not isolated_crashes then return '0' end
  return integer((tonumber(crashes) or 0) + math.floor((tonumber(isolated_crashes) or 0) / 3))
end

-- Reads both counters of a session or subagent and adds them up.
local function crashes_of(record)
  local fields = redis.call('HMGET', record, 'crashes', 'spared')
  return effective_crashes(fields[1], fields[2])
end

-- Parses field `taken` of a session, `<turn> <message> <message> ...`: the numbers, in order, of
-- the messages that joined turn n. They stay in the inbox until the turn ends.
local function parse_joined(joined, n)
  local numbers = {}
  if not joined then return numbers end
  for number in string.gmatch(joined, '%d+') do
    numbers[#numbers + 1] = number
  end
  -- The first number names the turn; what an earlier turn left behind counts as nothing.
  return table.remove(numbers, 1) == n and numbers or {}
end

-- Reads and parses that field.
local function joined_messages(session, n)
  return parse_joined(redis.call('HGET', session, 'taken'), n)
end

-- Jobs that keep memory: they can wait a minute after a crash of their worker.
local RESTING = {consolidate = true, idle = true, archive = true, rework = true}
-- Counts that a worker died while it ran this job or another one together with it. Returns how many
-- milliseconds the job must rest now.
local function count_job_crash(job)
  local crashes = key('crashed', job)
  redis.call('INCR', crashes)
  -- A day without a crash clears the count.
  redis.call('PEXPIRE', crashes, 86400000)
  return RESTING[string.match(job, '^(%a+):')] and 60000 or 0
end

-- Notes that work waits for a model, until some time after it is due again: an attempt takes a while
-- to fail. `commit` takes out what was answered; what ended otherwise is forgotten here.
local function note_model_wait(waits, member, now, delay_ms)
  guarded('ZADD', waits, integer(now + delay_ms + 15000), member)
  guarded('ZREMRANGEBYSCORE', waits, '-inf', integer(now))
  guarded('PEXPIRE', waits, 3600000)
end
