#!lua flags=allow-oom
-- with delivery
-- Take a call that is no post of a line off the rates.
-- KEYS   1 outleases  2 pause  3 state, then the rates
-- ARGV   1 session  2 lease  3 turn and key of the message that a turn is about to be streamed into ('' = it is another
--        call)  4 keep the state ms, then of each rate: us between two calls, calls at once, those that stay for others
-- returns 0 it may be made, else ms to wait; -1 the lease is lost
if not holds(KEYS[1], ARGV[1], ARGV[2]) then return -1 end
local wait = take_rates(KEYS[2], 4, 5)
if wait == 0 and ARGV[3] ~= '' then
  redis.call('HSET', KEYS[3], 'meant', ARGV[3])
  redis.call('PEXPIRE', KEYS[3], ARGV[4])
end
return wait
