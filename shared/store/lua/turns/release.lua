#!lua flags=allow-oom
-- Give a lease back before the work is done; what the ledger holds stays for the next owner. A turn keeps the place that
-- it had when it was taken first. A job of memory that crashed rests.
-- KEYS   1 queue  2 leases  3 wake  4 session or child ('' for a job)
-- ARGV   1 member  2 lease  3 delay ms  4 what to note: 'errors', 'crashes' (counted), 'away' (since when) or ''
-- returns 1 released, -1 the lease is lost
if not holds(KEYS[2], ARGV[1], ARGV[2]) then return -1 end
local is_job, delay = KEYS[4] == '', tonumber(ARGV[3])
if ARGV[4] == 'crashes' and is_job then
  delay = math.max(delay, job_crashed(ARGV[1]))
end
redis.call('HDEL', KEYS[2], ARGV[1])
local now = now_ms()
local head = string.sub(ARGV[1], 1, 5) == 'turn:'
  and redis.call('XRANGE', key('inbox', string.sub(ARGV[1], 6)), '-', '+', 'COUNT', 1)[1]
if head then
  -- Given back at once it keeps its place, and the wait for it is counted from here.
  local place = delay == 0 and string.match(redis.call('HGET', KEYS[4], 'place') or '', '^%d+')
  line_up(KEYS[1], KEYS[3], KEYS[4], ARGV[1], head, place and math.min(now, tonumber(place)) or now + delay, now)
  if place then
    redis.call('HSET', KEYS[4], 'place', place .. ' ' .. integer(now))
    local whose = redis.call('HGET', SHARES, ARGV[1])
    if whose and whose ~= 'background' then
      share(ARGV[1], '+' .. whose)
    end
  end
else
  redis.call('ZADD', KEYS[1], now + delay, ARGV[1])
end
if is_job then
  -- It has nothing to note that in.
elseif ARGV[4] == 'away' then
  redis.call('HSETNX', KEYS[4], 'away', integer(now_ms()))
elseif ARGV[4] == 'crashes' then
  count_crash(KEYS[4], ARGV[2])
elseif ARGV[4] ~= '' then
  redis.call('HINCRBY', KEYS[4], ARGV[4], 1)
end
if delay == 0 then
  wake_for(ARGV[1], KEYS[3])
end
return 1
