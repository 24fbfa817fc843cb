#!lua flags=allow-oom
-- durable
-- Records that the platform has a post. With the last one its line is delivered and leaves the
-- outbox. Renews the lease.
-- line, post  number of the first line, and of the post of it
-- is_last     '1' = the last post of the line
-- id          the platform's id of the post ('' = there was nothing to show)
-- returns 'noted' (now or before), 'lost'
local outqueue, outleases, state, outbox, outwaits, delivered_text = unpack(KEYS)
local name, lease, lease_ms, line, post, is_last, id, keep_ms, keep_text_ms = unpack(ARGV)
if not holds_lease(outleases, name, lease) then return 'lost' end
local at = post_position(state, outbox, line, post)
-- The server lost writes: another gateway begins with what it has now.
if at > 0 then
  release_chat(outqueue, outleases, name, 0)
  return 'lost'
end
keep_lease(outqueue, name, lease_ms)
-- Reported before.
if at < 0 then return 'noted' end
-- The platform took it, so the chat is open.
if id ~= '' then
  reopen_chat(name)
  -- The streamed message has become a post of the reply: nothing streams into it any more.
  if string.match(redis.call('HGET', state, 'bubble') or '', '^%d+ (.*)$') == id then
    redis.call('HDEL', state, 'bubble', 'shown')  -- it is a post of the reply now
  end
end
-- More posts of this line follow.
if is_last ~= '1' then
  redis.call('HDEL', state, 'sending', 'tries')
  redis.call('HSET', state, 'done', line .. ' ' .. integer(tonumber(post) + 1))
  redis.call('PEXPIRE', state, keep_ms)
  return 'noted'
end
-- The line is delivered. Its text is remembered for some minutes: an echo of it is no message of a
-- person. The hash of the line before stays, too.
local first = first_entry(outbox)
local ok, line = pcall(cmsgpack.unpack, field(first, 'm'))
if ok and type(line) == 'table' and type(line.content) == 'string' and id ~= '' then
  local before = string.sub(redis.call('GET', delivered_text) or '', 1, 40)
  redis.call('SET', delivered_text, redis.sha1hex(line.content) .. ' ' .. before, 'PX', keep_text_ms)
end
-- The state is ready for the next line.
remove_lines(name, state, outbox, outwaits, {first[1]})
return 'noted'
