#!lua flags=allow-oom
-- Say that a message has got a new form, or ask which one is the newest.
-- ARGV   1 prefix of the seen hashes  2 days an id is remembered  3 dedupe id of the first form  4 its id
--        5 id of the new form ('' = only ask)
-- returns the form that was the newest before; of a form that is told again, the same as the first time
local known = ARGV[3] .. '\nform'
local now = now_ms()
local before, newest = string.match(seen_before(ARGV[1], tonumber(ARGV[2]), known, now) or '', '^(.-)\n(.*)$')
newest = newest or ARGV[4]
if ARGV[5] == '' then return newest end
if ARGV[5] == newest then return before or newest end
note_seen(ARGV[1], tonumber(ARGV[2]), known, now, newest .. '\n' .. ARGV[5])
return newest
