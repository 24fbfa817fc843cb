#!lua flags=allow-oom
-- durable
-- Renews many leases at once.
-- due   the queue
-- held  JSON list of member, token, member, token and so on: the guardian has no MessagePack
-- returns for each of them -1 = the lease is lost, else the number of the turn that was told to
--         stop (0 = none)
local due, leases = unpack(KEYS)
local owner, lease_ms, held = unpack(ARGV)
held = cjson.decode(held)
-- One deadline for all: they were renewed at the same moment.
local now = now_ms()
local until_ms = now + tonumber(lease_ms)
-- While every slot is taken nobody claims, and only renewals show how late it was.
note_clock(due, now)
local answers = {}
for i = 1, #held, 2 do
  local member = held[i]
  -- Each pair on its own: one lost lease must not cost the others.
  if holds_lease(leases, member, owner .. ':' .. held[i + 1]) then
    -- XX: never puts a member back that was taken out of the queue.
    guarded('ZADD', due, 'XX', until_ms, member)
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
