#!lua flags=allow-oom
-- Records that a message was edited, or reads its newest form.
-- ARGV   1 prefix of the seen hashes  2 days an id is remembered  3 dedupe id of the first form  4 its id
--        5 id of the new form ('' = only ask)
-- returns the form that was the newest before; of a form that is told again, the same as the first time
-- The chain of forms is stored like an answer, under the id of the first form.
local known = ARGV[3] .. '\nform'
local now = now_ms()
-- `<form before>\n<newest form>`.
local before, newest = string.match(seen_before(ARGV[1], tonumber(ARGV[2]), known, now) or '', '^(.-)\n(.*)$')
newest = newest or ARGV[4]
-- Only asked.
if ARGV[5] == '' then return newest end
-- The same edit again: the reply to the first call was lost.
if ARGV[5] == newest then return before or newest end
remember_seen(ARGV[1], tonumber(ARGV[2]), known, now, newest .. '\n' .. ARGV[5])
return newest
