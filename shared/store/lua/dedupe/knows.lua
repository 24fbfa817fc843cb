#!lua flags=no-writes,allow-oom
-- durable
-- Looks up whether a message came before, and changes nothing.
-- seen  prefix of the hashes of seen ids; they are remembered for this many days
-- returns 1 it did, 0 it is not known
local seen, days, dedupe_id = unpack(ARGV)
return seen_before(seen, tonumber(days), dedupe_id, now_ms()) and 1 or 0
