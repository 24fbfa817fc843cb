#!lua flags=allow-oom
-- durable
-- Acquires a lock that is free, or that this owner holds because the reply to its call was lost.
-- grace  '1' = leave it half a lease more to whoever held it
-- returns {1, token, cursor, '1' if its owner was lost} or {0, ms until it may be taken}
local lock = unpack(KEYS)
local owner, lease_ms, grace, keep_ms = unpack(ARGV)
-- Time in us is the fencing token; leases count in ms.
local us = now_us()
local now = math.floor(us / 1000)
local held, ends, newest, cursor = unpack(redis.call('HMGET', lock, 'lease', 'until', 'token', 'cursor'))
-- Another owner has it: it is free after its deadline, in grace half a lease later.
if held and string.match(held, '^[^:]+') ~= owner then
  -- Further in the future than a lease: the clock fell back. Its owner, if it lives, renews it.
  if tonumber(ends) > now + tonumber(lease_ms) then
    ends = now + tonumber(lease_ms)
    redis.call('HSET', lock, 'until', integer(ends))
  end
  local free = tonumber(ends) + (grace == '1' and tonumber(lease_ms) / 2 or 0)
  if free > now then return {0, math.ceil(free - now)} end
end
-- Grows even when the clock fell back.
local token = integer(math.max(tonumber(newest or 0) + 1, us))
-- The cursor stays: the next listener goes on where the last one saved.
redis.call('HSET', lock, 'lease', owner .. ':' .. token, 'token', token, 'until', integer(now + lease_ms))
redis.call('PEXPIRE', lock, keep_ms)
return {1, token, cursor or '', held and '1' or '0'}
