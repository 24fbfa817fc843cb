#!lua flags=allow-oom
-- Asks for the end of the turn at the head of a session, running or waiting, and of no other turn.
-- A message that joined the turn stands for it. The subagents of the turn end with it.
-- KEYS   1 session  2 inbox  3 queue  4 leases  5 wake
-- ARGV   1 member  2 control channel  3 the turn that is meant ('' = the one at the head)
-- returns the turn's number, 0 if there is none or another one is at the head by now
local head = redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', 1)[1]
local n = head and string.match(head[1], '%d+')
if not n then return 0 end
-- A late stop names a turn; it must never hit the one that follows.
local matches = ARGV[3] == '' or ARGV[3] == n
-- A message that joined is answered by this turn, so naming it means this turn.
for _, joined in ipairs(joined_messages(KEYS[1], n)) do
  matches = matches or ARGV[3] == joined
end
if not matches then return 0 end
-- Its subagents first: a report of theirs would come back into a stopped conversation.
cancel_subagents(string.sub(ARGV[1], 6), n, '')
return tonumber(stop_head(KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], ARGV[1], ARGV[2]))
