#!lua flags=allow-oom
-- with delivery
-- Marks a post as about to be sent, before it is sent, and charges the rates. Renews the lease.
-- KEYS   1 outqueue  2 outleases  3 state  4 outbox  5 pause, then the rates
-- ARGV   1 session  2 lease  3 lease ms  4 line  5 post of it  6 what the platform offers after an unclear send
--        7 keep the state ms, then of each rate: us between two calls, calls at once, those that stay for others
-- returns {1 go, 1 = it may be there from before | 2 wait, ms | -1 the lease is lost, 0}
local name, state, line, post = ARGV[1], KEYS[3], ARGV[4], ARGV[5]
if not holds_lease(KEYS[2], name, ARGV[2]) then return {-1, 0} end
-- Not the next post: the state and the gateway disagree, so someone else starts from the state.
if post_position(state, KEYS[4], line, post) ~= 0 then
  release_chat(KEYS[1], KEYS[2], name, 0)
  return {-1, 0}
end
-- The lease counts from this call, also when the answer is to wait.
keep_lease(KEYS[1], name, ARGV[3])
-- KEYS 6 and on, ARGV 8 and on, are the rates.
local wait = charge_rates(KEYS[5], 6, 8)
if wait > 0 then return {2, wait} end
-- A mark of its own is an earlier call of this script, or a post that was refused for certain.
-- A platform that can be asked ('look-up') has been asked already.
local mark = sending_mark(state, line, post)
local unclear = mark and mark ~= ARGV[2] and ARGV[6] ~= 'look-up'
-- The post is sent again although it may exist: operators see how often.
if unclear then
  redis.call('HINCRBY', state, 'unsure', 1)
end
-- The last line that waits now; a closed chat gives up the lines up to this one.
local newest = entry_number(redis.call('XREVRANGE', KEYS[4], '+', '-', 'COUNT', 1)[1])
-- Written before the platform is called: this mark is what a successor finds after a crash.
redis.call('HSET', state, 'sending', table.concat({line, post, newest, ARGV[2]}, ' '))
redis.call('PEXPIRE', state, ARGV[7])
return {1, unclear and 1 or 0}
