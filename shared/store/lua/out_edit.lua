#!lua flags=allow-oom
-- with delivery
-- Take a call that is no post of a line off the rates.
-- KEYS   1 outleases  2 pause, then the rates
-- ARGV   1 session  2 lease, then of each rate: us between two calls, calls at once
-- returns 0 it may be made, else ms to wait; -1 the lease is lost
if not holds(KEYS[1], ARGV[1], ARGV[2]) then return -1 end
return take_rates(KEYS[2], 3, 3)
