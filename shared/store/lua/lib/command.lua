-- Functions that the scripts in `commands/` share: each answers a chat command, once, and makes its
-- change in the same step. What they have in common is `command`, a MessagePack map: dedupe_id,
-- `seen`
-- (prefix of the hashes of seen ids) and `days` for which they are remembered, keep_session_ms,
-- keep_log_ms, `line` of the command ('' = the channel keeps no log), `answer` (its line), chat_id.
--
-- Returns what a repeated command is answered with, as the first time; nil for a new one. One that
-- fails later changes nothing.
local function known_command(command, outbox, now)
  local first = seen_before(command.seen, command.days, command.dedupe_id, now)
  if first then
    return {'known', tonumber(string.match(first, ':(%d+)')), 0}
  end
  check_chat('stream', outbox)
end

-- Writes the lines of a command whose change was made, and notes that it was answered. `dropped` is
-- the number of archived entries that went. Returns what the caller is answered with, and the number
-- of the answer's line.
local function answer_command(command, session, outbox, live, chats, now, dropped)
  -- The command itself, for the person's other devices.
  local seq = 0
  if command.line ~= '' then
    seq = add_line(session, outbox, live, command.line, command.keep_log_ms, nil, nil, false)
  end
  local answered = add_line(session, outbox, live, command.answer, command.keep_log_ms, nil, nil, false)
  -- A command moves its chat up in the list, as a message does.
  if chats ~= NO_KEY then
    list_chat(session, chats, command.chat_id, '', command.keep_session_ms, now)
    -- Whoever writes a command looks at its answer. `row`: it may have changed what the list shows.
    add_own_line_fact(session, answered, 'at', integer(now), 'row', 1)
  end
  redis.call('PEXPIRE', session, command.keep_session_ms)
  -- Number 0: no turn.
  remember_seen(command.seen, command.days, command.dedupe_id, now, '0:' .. seq)
  return {'done', seq, dropped}, answered
end
