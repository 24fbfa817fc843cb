#!lua flags=allow-oom
-- with delivery
-- Records that the platform has a post. With the last one its line is delivered and leaves the
-- outbox. Renews the lease.
-- KEYS   1 outqueue  2 outleases  3 state  4 outbox  5 outwaits  6 what was said
-- ARGV   1 session  2 lease  3 lease ms  4 line  5 post of it  6 '1' = the last one  7 the platform's id of it ('' = there
--        was nothing to show)  8 keep the state ms  9 keep what was said ms
-- returns 1 noted, now or before, -1 the lease is lost
local name, state, box = ARGV[1], KEYS[3], KEYS[4]
if not holds_lease(KEYS[2], name, ARGV[2]) then return -1 end
local at = post_position(state, box, ARGV[4], ARGV[5])
-- The server lost writes: another gateway begins with what it has now.
if at > 0 then
  release_chat(KEYS[1], KEYS[2], name, 0)
  return -1
end
keep_lease(KEYS[1], name, ARGV[3])
-- Reported before.
if at < 0 then return 1 end
-- The platform took it, so the chat is open.
if ARGV[7] ~= '' then
  reopen_chat(name)
  -- The streamed message has become a post of the reply: nothing streams into it any more.
  if string.match(redis.call('HGET', state, 'bubble') or '', '^%d+ (.*)$') == ARGV[7] then
    redis.call('HDEL', state, 'bubble', 'shown')  -- it is a post of the reply now
  end
end
-- More posts of this line follow.
if ARGV[6] ~= '1' then
  redis.call('HDEL', state, 'sending', 'tries')
  redis.call('HSET', state, 'done', ARGV[4] .. ' ' .. integer(tonumber(ARGV[5]) + 1))
  redis.call('PEXPIRE', state, ARGV[8])
  return 1
end
-- The line is delivered. Its text is remembered for some minutes: an echo of it is no message of a
-- person. The hash of the line before stays, too.
local first = first_entry(box)
local ok, line = pcall(cmsgpack.unpack, field(first, 'm'))
if ok and type(line) == 'table' and type(line.content) == 'string' and ARGV[7] ~= '' then
  local before = string.sub(redis.call('GET', KEYS[6]) or '', 1, 40)
  redis.call('SET', KEYS[6], redis.sha1hex(line.content) .. ' ' .. before, 'PX', ARGV[9])
end
-- The state is ready for the next line.
remove_lines(name, state, box, KEYS[5], {first[1]})
return 1
