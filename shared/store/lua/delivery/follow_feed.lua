#!lua flags=allow-oom
-- Reads what a page has missed of its person's feed, and keeps the feed for a while: from now on
-- scripts append to it.
-- after    id of the newest entry that the page has ('' = none)
-- keep_ms  how long the feed is kept after this call
-- returns {id of the newest entry, the entries after `after`}; instead of these nil where the feed
--         does not go back that far: the page needs a list
local feed = unpack(KEYS)
local after, keep_ms = unpack(ARGV)
local newest = redis.pcall('XREVRANGE', feed, '+', '-', 'COUNT', 1)
if newest.err then
  -- Of another type, say. Nothing in a feed is lost with it: the list has it all.
  redis.call('DEL', feed)
  newest = {}
end
-- An empty first entry makes the feed, and gives pages an id from which to go on.
local id = newest[1] and newest[1][1] or redis.call('XADD', feed, '*', 'f', '')
redis.call('PEXPIRE', feed, keep_ms)
-- The page's entry itself must be there: then every one after it is, too.
if after == '' or #redis.call('XRANGE', feed, after, after) == 0 then return {id} end
return {id, redis.call('XRANGE', feed, '(' .. after, '+')}
