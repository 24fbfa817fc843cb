#!lua flags=allow-oom
-- durable
-- Stores a step of a running subagent.
-- step       counted from 1
-- cap_bytes  of the ledger
-- returns 'written', 'known' = it was written before, 'lost', 'full' = the ledger is
local leases, child, ledger, queue, wake_list = unpack(KEYS)
local member, lease, step, record, cap_bytes = unpack(ARGV)
local refused = step_refusal(leases, ledger, queue, wake_list, member, lease, step)
if refused then return refused end
return write_step(child, ledger, step, record, cap_bytes, 0) and 'written' or 'full'
