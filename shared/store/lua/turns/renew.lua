#!lua flags=allow-oom
-- Keep many leases at once.
-- KEYS   1 queue  2 leases
-- ARGV   1 owner  2 lease ms, then pairs: member, token
-- returns for each pair -1 (lost), else the number of the turn that was told to stop (0 = none)
-- One deadline for all: they were renewed at the same moment.
local now = now_ms()
local until_ms = now + tonumber(ARGV[2])
-- While every slot is taken nobody claims, and only renewals show how late it was.
note_clock(KEYS[1], now)
local answers = {}
for i = 3, #ARGV, 2 do
  local member = ARGV[i]
  -- Each pair on its own: one lost lease must not cost the others.
  if holds_lease(KEYS[2], member, ARGV[1] .. ':' .. ARGV[i + 1]) then
    -- XX: never puts a member back that was taken out of the queue.
    guarded('ZADD', KEYS[1], 'XX', until_ms, member)
    local stop = 0
    if string.sub(member, 1, 5) == 'turn:' then
      -- The durable side of a stop: the message on the control channel may have been lost. Where
      -- the session is broken there is none: that chat alone must not cost the others their leases.
      stop = parse_count(guarded('HGET', key('session', string.sub(member, 6)), 'stop')) or 0
    end
    answers[#answers + 1] = stop
  else
    answers[#answers + 1] = -1
  end
end
return answers
