#!lua flags=allow-oom
-- with delivery
-- Say that a post is about to be sent, ahead of it, and take it off the rates. Keeps the lease.
-- KEYS   1 outqueue  2 outleases  3 state  4 outbox  5 pause, then the rates
-- ARGV   1 session  2 lease  3 lease ms  4 line  5 post of it  6 what the platform offers after an unclear send
--        7 keep the state ms, then of each rate: us between two calls, calls at once, those that stay for others
-- returns {1 go, 1 = it may be there from before | 2 wait, ms | -1 the lease is lost, 0}
local name, state, line, post = ARGV[1], KEYS[3], ARGV[4], ARGV[5]
if not holds(KEYS[2], name, ARGV[2]) then return {-1, 0} end
if standing(state, KEYS[4], line, post) ~= 0 then
  hand_over(KEYS[1], KEYS[2], name, 0)
  return {-1, 0}
end
keep_lease(KEYS[1], name, ARGV[3])
local wait = take_rates(KEYS[5], 6, 8)
if wait > 0 then return {2, wait} end

-- Its own mark is an earlier call of this script, or a post that was refused for sure. Who can ask has asked.
local mark = mark_of(state, line, post)
local unclear = mark and mark ~= ARGV[2] and ARGV[6] ~= 'look-up'
if unclear then
  redis.call('HINCRBY', state, 'unsure', 1)
end
local newest = number_of(redis.call('XREVRANGE', KEYS[4], '+', '-', 'COUNT', 1)[1])
redis.call('HSET', state, 'sending', table.concat({line, post, newest, ARGV[2]}, ' '))
redis.call('PEXPIRE', state, ARGV[7])
return {1, unclear and 1 or 0}
