#!lua flags=allow-oom
-- Charges the rates for a call that is not a post of a line, such as an edit.
-- pending_stream  turn and key of the message that a turn is about to be streamed into ('' = it is
--                 another call)
-- shown           turn and characters of the streamed text that the call shows ('' = it shows none)
-- rates           see charge_rates
-- returns 0 it may be made, else ms to wait; 'lost'
local outleases, outpause, state = unpack(KEYS)
local name, lease, pending_stream, keep_ms, shown, channel, rates = unpack(ARGV)
if not holds_lease(outleases, name, lease) then return 'lost' end
local wait = charge_rates(outpause, channel, rates)
if wait == 0 and pending_stream ~= '' then
  -- Written before the platform is called: after a crash the next gateway knows the key of a
  -- message that may exist.
  redis.call('HSET', state, 'meant', pending_stream)
  redis.call('PEXPIRE', state, keep_ms)
end
if wait == 0 and shown ~= '' then
  -- The gateway that delivers the chat next does not edit the message back to a shorter text.
  redis.call('HSET', state, 'shown', shown)
  redis.call('PEXPIRE', state, keep_ms)
end
return wait
