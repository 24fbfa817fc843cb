#!lua
-- Changes how a chat is shown in its person's list.
-- title  '' = as it is
-- pin    '1' = pinned, '0' = not, '' = as it is
-- returns 1 done, 0 there is no such session
local session = unpack(KEYS)
local title, pin = unpack(ARGV)
-- A session that was erased must not come back as a hash that never expires.
if redis.call('EXISTS', session) == 0 then return 0 end
if title ~= '' then
  -- A title that a person gave stays: no model gives another one, and `/forget` leaves it.
  redis.call('HSET', session, 'title', title, 'titled', 'person')
end
if pin == '1' then
  redis.call('HSET', session, 'pin', '1')
elseif pin == '0' then
  redis.call('HDEL', session, 'pin')
end
add_fact(key_id(session), 'row', 1)
return 1
