#!lua flags=allow-oom
-- Answer the question that a parked turn waits for, past its inbox; the turn is due at once.
-- KEYS   1 queue  2 leases  3 wake  4 session  5 ledger  6 log  7 live
-- ARGV   1 member  2 id of the question  3 '1' = yes  4 who asks, the same for each try  5 sender
--        6 SHA-256 of what is meant ('' = not named)  7 line that says so  8 keep the log ms
-- returns the code of resolve_approval (lib/core.lua): 1 recorded, 0 recorded before, below 0 why it does not count
return resolve_approval({
  member = ARGV[1], queue = KEYS[1], leases = KEYS[2], wake = KEYS[3], session = KEYS[4], ledger = KEYS[5],
  log = KEYS[6], live = KEYS[7], id = ARGV[2], yes = ARGV[3], request = ARGV[4], sender = ARGV[5], digest = ARGV[6],
  line = ARGV[7], log_ms = ARGV[8],
})
