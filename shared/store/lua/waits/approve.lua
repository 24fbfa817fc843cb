#!lua flags=allow-oom
-- durable
-- Answer the question that a parked turn waits for, past its inbox; the turn is due at once.
-- For arguments see resolve_approval in lib/approvals.lua.
-- returns what it returns
local queue, leases, wake_list, session, ledger, outbox, live = unpack(KEYS)
local member, id, yes, request, sender, digest, line, keep_log_ms, always = unpack(ARGV)
return resolve_approval({
  member = member, queue = queue, leases = leases, wake = wake_list, session = session, ledger = ledger,
  log = outbox, live = live, id = id, yes = yes, request = request, sender = sender, digest = digest,
  line = line, log_ms = keep_log_ms, always = always,
})
