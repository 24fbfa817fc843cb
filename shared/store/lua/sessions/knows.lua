#!lua flags=no-writes,allow-oom
-- Looks up whether a message came before, and changes nothing.
-- ARGV   1 prefix of the seen hashes  2 days an id is remembered  3 dedupe id
-- returns 1 it did, 0 it is not known
return seen_before(ARGV[1], tonumber(ARGV[2]), ARGV[3], now_ms()) and 1 or 0
