#!lua flags=allow-oom
-- Take a member out of an agenda or put it off, unless somebody gave it another time since it was
-- read.
-- KEYS   1 agenda
-- ARGV   1 member  2 its time as it was read  3 put off by ms ('' = take it out)
-- returns 1 done, 0 it has another time now, or none
local at = redis.call('ZSCORE', KEYS[1], ARGV[1])
-- Somebody gave it another time since it was read: that time counts.
if not at or tonumber(at) ~= tonumber(ARGV[2]) then return 0 end
if ARGV[3] == '' then
  redis.call('ZREM', KEYS[1], ARGV[1])
else
  redis.call('ZADD', KEYS[1], now_ms() + tonumber(ARGV[3]), ARGV[1])
end
return 1
