-- A server's clock that falls back.
--
-- The newest time at which each queue was used, in a hash by the queue's name. The server's clock
-- may
-- fall back (NTP, a fail-over to a server that is behind), and what was queued before then lies in
-- the future. The name begins like that of a queue, so that older lists of Redis users allow it.
local CLOCKS = PREFIX .. 'queue:clock'

-- Remembers that a queue was used at `now`, to the second. Never moves that time back: the next
-- `repair_clock` would miss that the clock fell.
local function note_clock(queue, now)
  if now - (parse_count(guarded('HGET', CLOCKS, queue)) or 0) >= 1000 then
    guarded('HSET', CLOCKS, queue, integer(now))
  end
end

-- Returns by how many ms the clock fell back since `queues` were used, 0 if it did not. Everything
-- in
-- them that would wait for longer than a lease is moved by as much, which leaves it its own delay.
-- A
-- lease of a living worker gets its right time with the next renewal.
local function repair_clock(queues, lease_ms, now)
  local fell = (parse_count(guarded('HGET', CLOCKS, queues[1])) or 0) - now
  if math.abs(fell) >= 1000 then
    guarded('HSET', CLOCKS, queues[1], integer(now))
  end
  -- Less than a second is noise, and delays nothing that anybody notices.
  if fell < 1000 then return 0 end
  for _, queue in ipairs(queues) do
    local found = guarded('ZRANGEBYSCORE', queue, '(' .. integer(now + lease_ms), '+inf', 'WITHSCORES') or {}
    for i = 1, #found, 2 do
      local member, due = found[i], tonumber(found[i + 1])
      local asked = string.sub(member, 1, 5) == 'turn:'
        and guarded('HGET', key('session', string.sub(member, 6)), 'asked')
      -- An open question ends at the time that it shows to people.
      if not asked or string.match(asked, '^open %x+ (%d+)') ~= integer(due) then
        redis.call('ZADD', queue, integer(math.max(now, due - fell)), member)
      end
    end
  end
  return fell
end
