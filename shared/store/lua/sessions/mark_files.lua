#!lua flags=allow-oom
-- Marks the workspace of a session with sources of strangers' text, before some of it is written
-- there.
-- sources  labels, one a line
-- scope    of the folder that the chat works on ('' = none)
-- returns 1 marked, 0 there is no such session (any more)
local session = unpack(KEYS)
local sources, scope = unpack(ARGV)
-- Other chats work on that folder, too, and its files stay: its mark never expires.
if scope ~= '' then add_sources(key('memory', scope), 'sources', sources) end
-- A session that was erased must not come back as a hash that never expires.
if redis.call('EXISTS', session) == 0 then return 0 end
add_sources(session, 'file_sources', sources)
return 1
