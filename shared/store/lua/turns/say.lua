#!lua flags=allow-oom
-- durable
-- Stores a step of a running turn that says something in another chat, and the line there.
-- to_...         keys of the other chat
-- chats          the list of chats in which it moves up ('' = it stays where it is)
-- step           counted from 1
-- cap_bytes      of the ledger
-- history_bytes  cap of the history
-- sources        what marks the other chat from now on
-- entries        MessagePack list of what its history gains
-- returns 'written', 'known' = it was written before, 'lost', 'full' = the ledger is, 'no_chat'
local leases, session, ledger, queue, wake_list, to_session, to_outbox, to_live, to_history, chats = unpack(KEYS)
local member, lease, step, record, cap_bytes, line, keep_log_ms, chat_id, keep_session_ms,
  history_bytes, sources, entries = unpack(ARGV)
local refused = step_refusal(leases, ledger, queue, wake_list, member, lease, step)
if refused then return refused end
-- Nothing is created by talking to a chat that does not exist.
if redis.call('EXISTS', to_session) == 0 then return 'no_chat' end
-- A step without its effect would count as done: both or neither.
check_chat('hash', to_session)
check_chat('stream', to_outbox)
check_chat('list', to_history)
-- The text that is said counts against the cap, too; otherwise one turn could fill a log.
if not write_step(session, ledger, step, record, cap_bytes, #line) then return 'full' end
-- The line goes to the log of the chat now, before the turn ends.
local now = now_ms()
local moved = chats ~= NO_KEY and {'at', integer(now)} or {}
add_line(to_session, to_outbox, to_live, line, keep_log_ms, nil, nil, moved)
-- The other chat moves up in its person's list.
if chats ~= NO_KEY then
  list_chat(to_session, chats, chat_id, '', keep_session_ms, now)
  redis.call('PEXPIRE', to_session, keep_session_ms)
end
-- Text of strangers that the turn read may have come with it.
add_sources(to_session, 'sources', sources)
-- A later turn over there finds in its conversation what was said to it.
entries = cmsgpack.unpack(entries)
if #entries > 0 then
  local had = parse_count(redis.call('HGET', to_session, 'history')) or 0
  local _, _, has = add_history(to_session, to_history, entries, tonumber(history_bytes), had)
  redis.call('HSET', to_session, 'history', integer(has))
  redis.call('PEXPIRE', to_history, keep_session_ms)
end
return 'written'
