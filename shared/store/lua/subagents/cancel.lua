#!lua flags=allow-oom
-- End subagents of a session without a word to its chat. Whoever runs one is told, and can write nothing more.
-- ARGV   1 session  2 of this turn alone ('' = of any)  3 this one alone ('' = all)
-- returns how many there were
return cancel_children(ARGV[1], ARGV[2], ARGV[3])
