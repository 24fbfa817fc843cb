#!lua
-- durable
-- Adds entries to a conversation between two turns, once; or begins one, perhaps with none.
-- chats         of its principal
-- create        '1' = begin it
-- counter       number of its newest message as the caller read it; the entries have the next one
-- records       MessagePack list of the entries
-- sources       that mark them
-- meta          metadata as JSON ('' = none)
-- seen          prefix of the hashes of seen ids; they are remembered for this many days
-- most_chats    that a principal may have within 30 days (0 = no limit)
-- history_bytes cap of a history
-- returns {'done' | 'known' = this request did it before | 'no_session' | 'changed' = its counter is
--         another one | 'running' = a message waits or is being answered | 'chat_limit', number of the
--         entries}
local session, inbox, history, chats = unpack(KEYS)
local create, counter, records, sources, meta, dedupe_id, seen, days, chat_id, most_chats, keep_session_ms,
  history_bytes = unpack(ARGV)
days, most_chats = tonumber(days), tonumber(most_chats)
local now = now_ms()
local first = seen_before(seen, days, dedupe_id, now)
if first then return {'known', tonumber(string.match(first, '%d+'))} end
local n, size = unpack(redis.call('HMGET', session, 'n', 'history'))
if create ~= '1' and redis.call('EXISTS', session) == 0 then return {'no_session', 0} end
-- As in ingest.lua, where a session that has a counter is not counted.
if create == '1' and most_chats > 0
    and (guarded('ZCOUNT', chats, integer(now - 30 * 86400000), '+inf') or 0) >= most_chats then
  return {'chat_limit', 0}
end
if (n or '0') ~= counter then return {'changed', 0} end
-- A turn that runs has read the conversation already, and its own entries come at the end.
if redis.call('XLEN', inbox) > 0 then return {'running', 0} end
check_chat('list', history)
records = cmsgpack.unpack(records)
-- A number of their own, as if they had been a turn: it is over.
local number = integer(tonumber(counter) + (#records > 0 and 1 or 0))
redis.call('HSET', session, 'n', number, 'updated', integer(now))
redis.call('HSETNX', session, 'created', integer(now))
if meta ~= '' then redis.call('HSET', session, 'meta', meta) end
if #records > 0 then
  local _, _, bytes = add_history(session, history, records, tonumber(history_bytes), parse_count(size) or 0)
  redis.call('HSET', session, 'done', number, 'history', bytes)
  redis.call('PEXPIRE', history, keep_session_ms)
  add_sources(session, 'sources', sources)
end
redis.call('PEXPIRE', session, keep_session_ms)
list_chat(session, chats, chat_id, '', keep_session_ms, now, most_chats)
remember_seen(seen, days, dedupe_id, now, number .. ':0')
return {'done', tonumber(number)}
