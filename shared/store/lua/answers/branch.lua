#!lua
-- durable
-- Makes a chat that begins with the conversation of another one, once: its log, its conversation and
-- its place in the list come in this one step. The other chat stays as it is.
-- source        hash of the other chat
-- origin        its session, by which a repeated call is known
-- gen, created  of the other chat, as they were when it was read ('' = it has no such field)
-- turn          the newest turn that comes along
-- lines         MessagePack list of the lines of the new log, in their order; entries: the same of
--               the conversation
-- sources       what marks these entries
-- most_chats    chats that the person may have within 30 days (0 = no limit)
-- returns 'done', 'known' = an earlier call made it, 'occupied' = the name is that of another chat,
--         'changed' = the other chat is gone, or its conversation was ended or forgotten,
--         'chat_limit'
local session, history, outbox, chats, source = unpack(KEYS)
local name, chat_id, origin, gen, created, turn, title, lines, entries, sources, most_chats, keep_session_ms,
  keep_log_ms = unpack(ARGV)
local now, most = now_ms(), tonumber(most_chats)
if redis.call('HGET', session, 'branch_of') == origin then return 'known' end
if redis.call('EXISTS', session, history, outbox) > 0 then return 'occupied' end
-- What a person has deleted or forgotten since it was read must not live on here.
local other = redis.call('HMGET', source, 'gen', 'created', 'preset', 'busy', 'voice', 'scope', 'trusted',
  'trusted_after', 'trusted_sources')
if redis.call('EXISTS', source) == 0 or (other[1] or '') ~= gen or (other[2] or '') ~= created then return 'changed' end
if most > 0 and (guarded('ZCOUNT', chats, integer(now - 30 * 86400000), '+inf') or 0) >= most then
  return 'chat_limit'
end
-- Its choices come along. Standing approvals, the folder and schedules do not: they are permissions, and
-- what they permit was meant for the other chat.
for i, copied in ipairs({'preset', 'busy', 'voice'}) do
  if other[i + 2] then redis.call('HSET', session, copied, other[i + 2]) end
end
-- The memory of the other chat is its own; one of the person, or of all, is this chat's, too.
if other[6] and other[6] ~= 'chat:' .. origin then redis.call('HSET', session, 'scope', other[6]) end
-- The entries keep the numbers of their turns, so what was trusted of them stays trusted. No later turn:
-- the next one here gets a number that the other chat may have used for one that was trusted.
if other[7] then
  redis.call('HSET', session, 'trusted', integer(math.min(tonumber(other[7]), tonumber(turn))))
end
for i, copied in ipairs({'trusted_after', 'trusted_sources'}) do
  if other[i + 7] then redis.call('HSET', session, copied, other[i + 7]) end
end
add_sources(session, 'sources', sources)
local _, _, size = add_history(session, history, cmsgpack.unpack(entries), math.huge, 0)
lines = cmsgpack.unpack(lines)
for seq, line in ipairs(lines) do
  redis.call('XADD', outbox, integer(seq) .. '-0', 'm', line)
end
-- n and done: every message up to this turn is answered, and the next one follows it. No IDLE: a branch
-- in which nobody writes is not consolidated, for the other chat is.
redis.call('HSET', session, 'branch_of', origin, 'n', turn, 'done', turn, 'tries', 0, 'log', #lines, 'acked', #lines,
  'history', integer(size), 'title', title, 'titled', 'kept', 'created', integer(now), 'updated', integer(now))
redis.call('PEXPIRE', session, keep_session_ms)
redis.call('PEXPIRE', history, keep_session_ms)
redis.call('PEXPIRE', outbox, keep_log_ms)
list_chat(session, chats, chat_id, '', keep_session_ms, integer(now), most)
add_fact(name, 'at', integer(now), 'seq', #lines, 'seen', #lines, 'row', 1)
return 'done'
