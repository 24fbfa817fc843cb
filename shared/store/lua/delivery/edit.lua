#!lua flags=allow-oom
-- with delivery
-- Charges the rates for a call that is not a post of a line, such as an edit.
-- KEYS   1 outleases  2 pause  3 state, then the rates
-- ARGV   1 session  2 lease  3 turn and key of the message that a turn is about to be streamed into ('' = it is another
--        call)  4 keep the state ms  5 turn and characters of the streamed text that the call shows ('' = it shows
--        none), then of each rate: us between two calls, calls at once, those that stay for others
-- returns 0 it may be made, else ms to wait; -1 the lease is lost
if not holds_lease(KEYS[1], ARGV[1], ARGV[2]) then return -1 end
-- KEYS 4 and on, ARGV 6 and on, are the rates.
local wait = charge_rates(KEYS[2], 4, 6)
if wait == 0 and ARGV[3] ~= '' then
  -- Written before the platform is called: after a crash the next gateway knows the key of a
  -- message that may exist.
  redis.call('HSET', KEYS[3], 'meant', ARGV[3])
  redis.call('PEXPIRE', KEYS[3], ARGV[4])
end
if wait == 0 and ARGV[5] ~= '' then
  -- The gateway that delivers the chat next does not edit the message back to a shorter text.
  redis.call('HSET', KEYS[3], 'shown', ARGV[5])
  redis.call('PEXPIRE', KEYS[3], ARGV[4])
end
return wait
