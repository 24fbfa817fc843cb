#!lua flags=allow-oom
-- Pauses or resumes a chat's schedules.
-- KEYS   1 due times  2 the chat's schedules
-- ARGV   1 session  2 ms after which those that still rest are over ('' = go on)
-- returns how many
return pause_schedules(ARGV[1], ARGV[2])
