#!lua flags=allow-oom
-- durable
-- Answers a command that changes nothing, or makes a choice of the chat.
-- choice  '' = none, 'preset' = of a model, 'busy' = what is done while a turn runs, 'folder' = to
--         work on, 'voice' = recordings are answered by one, too, 'standing' = a standing approval
--         is taken back
-- value   '' = the usual one; id of the standing approval, or 'all'
-- returns {'done' | 'known' = answered before, seq of the command's line, 0}
local session, outbox, live, chats = unpack(KEYS)
local command, choice, value = unpack(ARGV)
command = cmsgpack.unpack(command)
local now = now_ms()
local known = known_command(command, outbox, now)
if known then return known end
if choice == 'standing' then
  change_standing(session, value)
elseif choice ~= '' and value == '' then
  redis.call('HDEL', session, choice)
elseif choice ~= '' then
  redis.call('HSET', session, choice, value)
end
return answer_command(command, session, outbox, live, chats, now, 0)
