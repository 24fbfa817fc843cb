#!lua flags=allow-oom
-- Asks for the end of the turn at the head of a session, running or waiting, and of no other turn.
-- A message that joined the turn stands for it. The subagents of the turn end with it.
-- control  the pub/sub channel
-- turn     that is to end ('' = the one at the head)
-- returns the turn's number, 0 if there is none or another one is at the head by now
local session, inbox, queue, leases, wake_list = unpack(KEYS)
local member, control, turn = unpack(ARGV)
local head = redis.call('XRANGE', inbox, '-', '+', 'COUNT', 1)[1]
local n = head and string.match(head[1], '%d+')
if not n then return 0 end
-- A late stop names a turn; it must never hit the one that follows.
local matches = turn == '' or turn == n
-- A message that joined is answered by this turn, so naming it means this turn.
for _, joined in ipairs(joined_messages(session, n)) do
  matches = matches or turn == joined
end
if not matches then return 0 end
-- Its subagents first: a report of theirs would come back into a stopped conversation.
cancel_subagents(string.sub(member, 6), n, '')
return tonumber(stop_head(session, inbox, queue, leases, wake_list, member, control))
