#!lua flags=allow-oom
-- durable
-- Ends subagents of a session without a report to its chat. The worker that runs one is told to
-- stop and can write nothing more.
-- name  the session
-- turn  of this turn alone ('' = of any)
-- id    this one alone ('' = all)
-- returns how many there were
local name, turn, id = unpack(ARGV)
-- All keys are built from the session's name.
return cancel_subagents(name, turn, id)
