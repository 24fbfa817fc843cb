#!lua flags=allow-oom
-- Ends subagents of a session without a report to its chat. The worker that runs one is told to
-- stop and can write nothing more.
-- ARGV   1 session  2 of this turn alone ('' = of any)  3 this one alone ('' = all)
-- returns how many there were
-- All keys are built from the session's name.
return cancel_subagents(ARGV[1], ARGV[2], ARGV[3])
