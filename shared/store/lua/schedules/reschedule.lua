#!lua flags=allow-oom
-- durable
-- Take a member out of an agenda or put it off, unless somebody gave it another time since it was
-- read.
-- at_ms     its time as it was read
-- delay_ms  by which it is put off ('' = take it out)
-- returns 1 done, 0 it has another time now, or none
local agenda = unpack(KEYS)
local member, at_ms, delay_ms = unpack(ARGV)
local at = redis.call('ZSCORE', agenda, member)
-- Somebody gave it another time since it was read: that time counts.
if not at or tonumber(at) ~= tonumber(at_ms) then return 0 end
if delay_ms == '' then
  redis.call('ZREM', agenda, member)
else
  redis.call('ZADD', agenda, now_ms() + tonumber(delay_ms), member)
end
return 1
