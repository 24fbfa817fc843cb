#!lua flags=allow-oom
-- durable
-- Pauses or resumes a chat's schedules.
-- name     the session
-- rest_ms  time after which those that still rest are over ('' = go on)
-- returns how many
local SCHEDULES, schedules = unpack(KEYS)
local name, rest_ms = unpack(ARGV)
return pause_schedules(name, rest_ms)
