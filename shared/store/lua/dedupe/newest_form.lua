#!lua flags=allow-oom
-- durable
-- Records that a message was edited, or reads its newest form.
-- seen       prefix of the hashes of seen ids; they are remembered for this many days
-- first_key  dedupe id of the first form
-- first      its id
-- form       id of the new form ('' = only ask)
-- returns the form that was the newest before; of a form that is told again, the same as the first
--         time
local seen, days, first_key, first, form = unpack(ARGV)
-- The chain of forms is stored like an answer, under the id of the first form.
local known = first_key .. '\nform'
local now = now_ms()
-- `<form before>\n<newest form>`.
local before, newest = string.match(seen_before(seen, tonumber(days), known, now) or '', '^(.-)\n(.*)$')
newest = newest or first
-- Only asked.
if form == '' then return newest end
-- The same edit again: the reply to the first call was lost.
if form == newest then return before or newest end
remember_seen(seen, tonumber(days), known, now, newest .. '\n' .. form)
return newest
