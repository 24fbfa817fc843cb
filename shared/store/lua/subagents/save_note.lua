#!lua flags=allow-oom
-- durable
-- Stores the progress of a running subagent.
-- rounds  so far
-- tokens  how many more
-- returns 'noted', 'lost'
local leases, child = unpack(KEYS)
local member, lease, rounds, tokens = unpack(ARGV)
if not holds_lease(leases, member, lease) then return 'lost' end
redis.call('HSET', child, 'rounds', rounds)
-- Tokens are added, because attempts before this one used some, too.
redis.call('HINCRBY', child, 'tokens', tokens)
return 'noted'
