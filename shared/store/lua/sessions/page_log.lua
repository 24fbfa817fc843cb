#!lua flags=allow-oom
-- durable
-- Moves the oldest lines of a chat's log to its pages, all at once.
-- first        number of the first of these lines
-- behind       number after the last
-- pages_bytes  cap of the pages
-- new          MessagePack list of the number of the first line of a page, its content, and so on
-- returns 1 done, 0 the log begins with another line by now
local session, outbox, pages = unpack(KEYS)
local first, behind, pages_bytes, keep_pages_ms, new = unpack(ARGV)
local oldest = redis.call('XRANGE', outbox, '-', '+', 'COUNT', 1)[1]
if not oldest or oldest[1] ~= first .. '-0' then return 0 end
new = cmsgpack.unpack(new)
local now, size = now_ms(), 0
-- First the pages: from here on the lines are in both.
for i = 1, #new, 2 do
  redis.call('XADD', pages, new[i] .. '-0', 'z', new[i + 1], 't', integer(now))
  size = size + #new[i + 1]
end
redis.call('XTRIM', outbox, 'MINID', behind .. '-0')
-- Field `pages` of the session counts the bytes. It begins again with the stream, which expires.
local length = redis.call('XLEN', pages)
if length > #new / 2 then
  size = count_up(session, 'pages', size)
end
-- Pages over the cap and those that are too old go, the oldest first. The newest always stays.
for left = length, 2, -1 do
  local page = redis.call('XRANGE', pages, '-', '+', 'COUNT', 1)[1]
  if size <= tonumber(pages_bytes) and (tonumber(field(page, 't')) or 0) >= now - tonumber(keep_pages_ms) then break end
  redis.call('XDEL', pages, page[1])
  size = size - #(field(page, 'z') or '')
end
redis.call('HSET', session, 'pages', integer(size))
redis.call('PEXPIRE', pages, keep_pages_ms)
return 1
