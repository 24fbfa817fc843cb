#!lua flags=allow-oom
-- Acquires a lock that is free, or that this owner holds because the reply to its call was lost.
-- KEYS   1 lock
-- ARGV   1 owner  2 lease ms  3 '1' = leave it half a lease more to whoever held it (grace)  4 keep it ms
-- returns {1, token, cursor, '1' if its owner was lost} or {0, ms until it may be taken}
-- Time in us is the fencing token; leases count in ms.
local us = now_us()
local now = math.floor(us / 1000)
local lease, ends, newest, cursor = unpack(redis.call('HMGET', KEYS[1], 'lease', 'until', 'token', 'cursor'))
-- Another owner has it: it is free after its deadline, in grace half a lease later.
if lease and string.match(lease, '^[^:]+') ~= ARGV[1] then
  -- Further in the future than a lease: the clock fell back. Its owner, if it lives, renews it.
  if tonumber(ends) > now + tonumber(ARGV[2]) then
    ends = now + tonumber(ARGV[2])
    redis.call('HSET', KEYS[1], 'until', integer(ends))
  end
  local free = tonumber(ends) + (ARGV[3] == '1' and tonumber(ARGV[2]) / 2 or 0)
  if free > now then return {0, math.ceil(free - now)} end
end
-- Grows even when the clock fell back.
local token = integer(math.max(tonumber(newest or 0) + 1, us))
-- The cursor stays: the next listener goes on where the last one saved.
redis.call('HSET', KEYS[1], 'lease', ARGV[1] .. ':' .. token, 'token', token, 'until', integer(now + ARGV[2]))
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return {1, token, cursor or '', lease and '1' or '0'}
