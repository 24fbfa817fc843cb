#!lua flags=allow-oom
-- with delivery
-- A post is there; with the last one its line is delivered, and leaves the outbox. Keeps the lease.
-- KEYS   1 outqueue  2 outleases  3 state  4 outbox  5 outwaits  6 what was said
-- ARGV   1 session  2 lease  3 lease ms  4 line  5 post of it  6 '1' = the last one  7 the platform's id of it ('' = there
--        was nothing to show)  8 keep the state ms  9 keep what was said ms
-- returns 1 noted, now or before, -1 the lease is lost
local name, state, box = ARGV[1], KEYS[3], KEYS[4]
if not holds(KEYS[2], name, ARGV[2]) then return -1 end
local at = standing(state, box, ARGV[4], ARGV[5])
if at > 0 then
  hand_over(KEYS[1], KEYS[2], name, 0)
  return -1
end
keep_lease(KEYS[1], name, ARGV[3])
if at < 0 then return 1 end

if ARGV[7] ~= '' then
  open_chat(name)
  if string.match(redis.call('HGET', state, 'bubble') or '', '^%d+ (.*)$') == ARGV[7] then
    redis.call('HDEL', state, 'bubble')  -- it is a post of the reply now
  end
end
if ARGV[6] ~= '1' then
  redis.call('HDEL', state, 'sending', 'tries')
  redis.call('HSET', state, 'done', ARGV[4] .. ' ' .. integer(tonumber(ARGV[5]) + 1))
  redis.call('PEXPIRE', state, ARGV[8])
  return 1
end
local first = first_of(box)
local ok, line = pcall(cmsgpack.unpack, field(first, 'm'))
if ok and type(line) == 'table' and type(line.content) == 'string' and ARGV[7] ~= '' then
  local before = string.sub(redis.call('GET', KEYS[6]) or '', 1, 40)
  redis.call('SET', KEYS[6], redis.sha1hex(line.content) .. ' ' .. before, 'PX', ARGV[9])
end
end_lines(name, state, box, KEYS[5], {first[1]})
return 1
