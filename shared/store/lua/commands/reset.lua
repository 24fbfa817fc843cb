#!lua flags=allow-oom
-- durable
-- Ends a conversation, the turn that runs and what waits; begins a new generation.
-- keep           '1' = the conversation goes to the archive (/new), '0' = nothing is remembered
--                (/forget)
-- n, waiting     message counter and number of waiting messages, as the answer has them
-- event          live event that says that the turn at the head is over
-- scope          of the memory
-- archive_bytes  cap of the archive
-- sender         who asks, '<channel>:<sender>'
-- returns {'done' | 'known' = answered before, seq of the command's line, archived entries dropped}
--         | {'changed' = the inbox has}
local session, inbox, queue, leases, ledger, history, archive, outbox, live, chats, memory, memlog, IDLE, REWORK =
  unpack(KEYS)
local name, command, member, keep, n, waiting, control, event, scope, archive_bytes, sender = unpack(ARGV)
command = cmsgpack.unpack(command)
local now = now_ms()
local known = known_command(command, outbox, now)
if known then return known end
check_chat('stream', inbox)
check_chat('list', history, archive)
-- The answer's text counts messages, so the session must not have moved since it was read.
waiting = tonumber(waiting)
if (redis.call('HGET', session, 'n') or '0') ~= n or redis.call('XLEN', inbox) ~= waiting then
  return {'changed'}
end
local dropped, ended = 0, nil
if waiting > 0 then
  -- Without its lease the running turn can write nothing more; the control channel makes it end
  -- now.
  local head = redis.call('XRANGE', inbox, '-', '+', 'COUNT', 1)[1]
  ended = string.match(head[1], '%d+')
  redis.call('PUBLISH', control, member .. ' ' .. ended)
  redis.call('PUBLISH', live, event)
  redis.call('DEL', inbox)
end
add_fact(name, 'running', 0, 'asks', 0)
-- Nothing of the old conversation is due any more.
remove_from_queue(queue, member)
redis.call('HDEL', leases, member)
redis.call('DEL', ledger, live)
-- Read before the fields are deleted.
local conversation_bytes = parse_count(redis.call('HGET', session, 'history')) or 0
redis.call('HDEL', session, 'errors', 'crashes', 'spared', 'apart', 'tries', 'away', 'alone', 'ledger', 'stop',
  'history', 'taken', 'cut', 'place', 'person', 'gap', 'sources')
if keep ~= '1' then
  redis.call('HDEL', session, 'share')
  -- A title that was made of the conversation is forgotten with it. The next message gives one.
  local titled = redis.call('HGET', session, 'titled')
  if titled and titled ~= 'person' then
    redis.call('HDEL', session, 'title', 'titled')
    add_fact(name, 'row', 1)
  end
end
-- The newest turn that belongs to the old conversation: `/trust` vouches for none of those.
redis.call('HSET', session, 'began', n)
-- The generation: reports of subagents to an older one are dropped.
count_up(session, 'gen', 1)
drop_subagents(name)
-- The job that consolidates the old conversation is queued by the caller.
local entries = redis.call('LLEN', history)
guarded('ZREM', IDLE, name)
-- The conversation moves to the archive, where a job brings it into memory.
if keep == '1' then
  local size = count_up(session, 'archive', conversation_bytes)
  -- The usual case moves no data at all.
  if entries > 0 and redis.call('EXISTS', archive) == 0 then
    redis.call('RENAME', history, archive)
  else
    local conversation = redis.call('LRANGE', history, 0, -1)
    for i = 1, #conversation, 500 do  -- one by one, a long conversation would hold everybody up
      redis.call('RPUSH', archive, unpack(conversation, i, math.min(i + 499, #conversation)))
    end
  end
  -- The oldest entries go when no model could consolidate them for long.
  dropped = trim_archive(session, archive, tonumber(archive_bytes), size)
  redis.call('PEXPIRE', archive, command.keep_session_ms)
  if redis.call('EXISTS', archive) == 1 then
    -- The sweep finds the session, in case the caller dies before it queues the job.
    guarded('ZADD', IDLE, now, name)
  end
else
  -- 'forget': a consolidation under way finds other marks and writes nothing.
  count_up(session, 'archive_mark', redis.call('LLEN', archive))
  redis.call('DEL', archive, memlog)
  -- Guarded: an older list of Redis users does not allow this key, and then there is none.
  guarded('DEL', key('transcript', name))
  redis.call('HDEL', session, 'archive', 'file_sources', 'transcript', 'standing')
  if redis.call('EXISTS', memory) == 1 then
    -- The empty memory stays for a day: its version tells a writer that began before that it
    -- changed.
    set_memory(memory, '')
    for _, old in ipairs(old_texts(memory)) do
      redis.call('HDEL', memory, old, 'mark:' .. string.sub(old, 5))
    end
    redis.call('HDEL', memory, 'log', 'sources')
    redis.call('PEXPIRE', memory, 86400000)
  end
  guarded('ZREM', REWORK, scope)
  guarded('DEL', key('memory', 'soul:' .. name), key('memory', 'about:' .. sender))
  drop_schedules(name)
  drop_responses(name)
end
redis.call('DEL', history)
-- The same for a consolidation of the conversation itself.
count_up(session, 'mark', entries)
local answer, seq = answer_command(command, session, outbox, live, chats, now, dropped)
-- The line names the messages that nobody answers any more.
if ended then
  add_notice(name, ended, seq, event)
end
return answer
