#!lua flags=allow-oom
-- durable
-- Answers the question that a parked turn waits for.
-- For the arguments from `id` on see resolve_approval in lib/approvals.lua.
-- returns {'done' | 'known' = answered before | a reason of resolve_approval for which it does not
--         count, seq of the command's line, 0}
local session, queue, leases, ledger, outbox, live, chats, wake_list = unpack(KEYS)
local command, member, id, yes, request, sender, digest, line, always = unpack(ARGV)
command = cmsgpack.unpack(command)
local now = now_ms()
local known = known_command(command, outbox, now)
if known then return known end
local outcome = resolve_approval({
  member = member, queue = queue, leases = leases, wake = wake_list, session = session, ledger = ledger, log = outbox,
  live = live, id = id, yes = yes, request = request, sender = sender, digest = digest, line = line,
  log_ms = command.keep_log_ms, always = always,
})
if outcome ~= 'done' then return {outcome} end
return answer_command(command, session, outbox, live, chats, now, 0)
