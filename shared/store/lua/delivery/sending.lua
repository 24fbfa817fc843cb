#!lua flags=allow-oom
-- durable
-- Marks a post as about to be sent, before it is sent, and charges the rates. Renews the lease.
-- line, post    number of the first line, and of its next post
-- resend_guard  what the platform offers after an unclear send
-- rates         see charge_rates
-- returns {'go', 1 = it may be there from before} | {'wait', ms} | {'lost'}
local outqueue, outleases, state, outbox, outpause = unpack(KEYS)
local name, lease, lease_ms, line, post, resend_guard, keep_ms, channel, rates = unpack(ARGV)
if not holds_lease(outleases, name, lease) then return {'lost'} end
-- Not the next post: the state and the gateway disagree, so someone else starts from the state.
if post_position(state, outbox, line, post) ~= 0 then
  release_chat(outqueue, outleases, name, 0)
  return {'lost'}
end
-- The lease counts from this call, also when the answer is to wait.
keep_lease(outqueue, name, lease_ms)
local wait = charge_rates(outpause, channel, rates)
if wait > 0 then return {'wait', wait} end
-- A mark of its own is an earlier call of this script, or a post that was refused for certain.
-- A platform that can be asked ('look-up') has been asked already.
local mark = sending_mark(state, line, post)
local unclear = mark and mark ~= lease and resend_guard ~= 'look-up'
-- The post is sent again although it may exist: operators see how often.
if unclear then
  redis.call('HINCRBY', state, 'unsure', 1)
end
-- The last line that waits now; a closed chat gives up the lines up to this one.
local newest = entry_number(redis.call('XREVRANGE', outbox, '+', '-', 'COUNT', 1)[1])
-- Written before the platform is called: this mark is what a successor finds after a crash.
redis.call('HSET', state, 'sending', table.concat({line, post, newest, lease}, ' '))
redis.call('PEXPIRE', state, keep_ms)
return {'go', unclear and 1 or 0}
