#!lua
-- durable
-- Takes the newest turn out of a conversation and answers its message again, or another in its
-- place: both in this one step, so that no crash leaves a conversation without the message.
-- n, entries    message counter and length of the conversation, as they were when the turn was read
-- gone          how many of the newest entries go
-- record, version  the message, and the schema version of its record
-- person        fair key of the turn ('' = its chat's own)
-- sessions_cap  sessions that may wait
-- returns {'done' | 'known' = answered before | 'changed' = the session has, or a message waits |
--         'overloaded' = too many sessions wait, seq of the message's line, 0}
local session, inbox, queue, history, outbox, live, chats, wake_list = unpack(KEYS)
local name, command, member, n, entries, gone, record, version, person, sessions_cap = unpack(ARGV)
command = cmsgpack.unpack(command)
local now = now_ms()
local known = known_command(command, outbox, now)
if known then return known end
check_chat('stream', inbox)
check_chat('list', history)
check_fleet('zset', queue)
gone = tonumber(gone)
-- Another message, or a consolidation, came between: the newest turn may be another one.
if (redis.call('HGET', session, 'n') or '0') ~= n or redis.call('XLEN', inbox) > 0
    or redis.call('LLEN', history) ~= tonumber(entries) then
  return {'changed'}
end
if redis.call('ZCARD', queue) + (guarded('ZCARD', BACKGROUND) or 0) >= tonumber(sessions_cap) then
  return {'overloaded'}
end
if gone > 0 then
  local size = 0
  for _, entry in ipairs(redis.call('RPOP', history, gone)) do
    size = size + #entry
  end
  -- As in consolidate.lua: the bytes of an empty list are not counted.
  if redis.call('EXISTS', history) == 0 then
    redis.call('HDEL', session, 'history')
  else
    redis.call('HINCRBY', session, 'history', -size)
  end
  -- A consolidation that read these entries must find another mark: it would remove as many from the
  -- head as it read, and with them entries that it never saw.
  count_up(session, 'mark', gone)
end
local entry = {'v', version, 'm', record}
if person ~= '' then
  entry[#entry + 1] = 'p'
  entry[#entry + 1] = person
end
local number = append(name, inbox, parse_count(n), unpack(entry))
local seq = 0
if command.line ~= '' then
  seq = add_line(session, outbox, live, command.line, command.keep_log_ms, nil, nil, false)
  add_own_line_fact(session, seq)
end
if chats ~= NO_KEY then
  list_chat(session, chats, command.chat_id, '', command.keep_session_ms, now)
end
add_fact(name, 'at', integer(now), 'running', 1)
redis.call('HSET', session, 'n', number, 'updated', integer(now))
redis.call('PEXPIRE', session, command.keep_session_ms)
remember_seen(command.seen, command.days, command.dedupe_id, now, number .. ':' .. seq)
enqueue(queue, wake_list, session, member, number, person, false, now, now)
-- The gateway that delivers the chat shows "typing" while the turn runs.
local channel = delivery_channel(name)
if channel then mark_due(name, channel, now, command.keep_log_ms) end
return {'done', seq, 0}
