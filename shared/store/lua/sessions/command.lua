#!lua flags=allow-oom
-- Answers a chat command, once, and makes its change in the same step.
-- KEYS   1 session  2 inbox  3 queue  4 leases  5 ledger  6 history  7 archive  8 log  9 live  10 chats ('' = the channel
--        keeps no list)  11 memory  12 HISTORY.md  13 idle  14 rework  15 wake
-- ARGV   1 '' = only answer, 'new' = a new generation, 'forget' = the same and nothing is remembered, 'stop' = end the
--        turn at the head, 'preset' = choose a model, 'busy' = choose what is done while a turn runs,
--        'unschedule' = take a schedule out, 'cancel' = end subagents; 'stop', 'new' and 'forget' end all of them,
--        'approve' = answer the question that a parked turn waits for
--        as the answer has it: 2 the session's message counter  3 how many waited ('new', 'forget')
--        4 dedupe id  5 prefix of the seen hashes  6 days an id is remembered  7 keep the session ms
--        8 keep the log ms  9 line of the command ('' = the channel keeps no log)  10 line of the answer
--        11 member  12 control channel  13 live event that says that the turn at the head is over
--        14 chat id  15 preset ('' = the usual model)  16 memory scope
--        as the answer has it: 17 the turn at the head, 0 = none ('stop')
--        18 cap of the archive in bytes  19 what is done while a turn runs ('' = as the channel has it)
--        20 the schedule that goes  21 the subagent that ends ('' = all)
--        of an answer: 22 id of the question  23 '1' = yes  24 who asks  25 sender  26 SHA-256 of what is meant  27 line
-- returns {1 done | 0 known | -1 the inbox has changed
--         | below -10 an answer that does not count: the code of resolve_approval - 10,
--         seq of the command's line, archived entries dropped}
-- Everything below happens in one step: the change, the answer, and the note that it was answered.
local session, inbox, member, op = KEYS[1], KEYS[2], ARGV[11], ARGV[1]
local now, dropped = now_ms(), 0
-- A repeated command gets the first answer again.
local first = seen_before(ARGV[5], tonumber(ARGV[6]), ARGV[4], now)
if first then
  return {0, tonumber(string.match(first, ':(%d+)')), 0}
end
-- A command that fails changes nothing.
check_chat('stream', inbox, KEYS[8])
check_chat('list', KEYS[6], KEYS[7])
-- The answer's text counts messages, so the session must not have moved since it was read.
if op == 'new' or op == 'forget' then
  local waiting = redis.call('XLEN', inbox)
  if (redis.call('HGET', session, 'n') or '0') ~= ARGV[2] or waiting ~= tonumber(ARGV[3]) then
    return {-1, 0, 0}
  end
  if waiting > 0 then
    -- Without its lease the running turn can write nothing more; the control channel makes it end
    -- now.
    local head = redis.call('XRANGE', inbox, '-', '+', 'COUNT', 1)[1]
    redis.call('PUBLISH', ARGV[12], member .. ' ' .. string.match(head[1], '%d+'))
    redis.call('PUBLISH', KEYS[9], ARGV[13])
    redis.call('DEL', inbox)
  end
  -- Nothing of the old conversation is due any more.
  remove_from_queue(KEYS[3], member)
  redis.call('HDEL', KEYS[4], member)
  redis.call('DEL', KEYS[5])
  -- Read before the fields are deleted.
  local conversation_bytes = parse_count(redis.call('HGET', session, 'history')) or 0
  redis.call('HDEL', session, 'errors', 'crashes', 'spared', 'apart', 'tries', 'away', 'ledger', 'stop', 'history',
    'taken', 'cut', 'place', 'person', 'gap')
  -- The generation: reports of subagents to an older one are dropped.
  count_up(session, 'gen', 1)
  drop_subagents(string.sub(member, 6))
  -- The job that consolidates the old conversation is queued by the caller.
  local name, entries = string.sub(member, 6), redis.call('LLEN', KEYS[6])
  guarded('ZREM', KEYS[13], name)
  -- The conversation moves to the archive, where a job brings it into memory.
  if op == 'new' then
    local size = count_up(session, 'archive', conversation_bytes)
    -- The usual case moves no data at all.
    if entries > 0 and redis.call('EXISTS', KEYS[7]) == 0 then
      redis.call('RENAME', KEYS[6], KEYS[7])
    else
      local conversation = redis.call('LRANGE', KEYS[6], 0, -1)
      for i = 1, #conversation, 500 do  -- one by one, a long conversation would hold everybody up
        redis.call('RPUSH', KEYS[7], unpack(conversation, i, math.min(i + 499, #conversation)))
      end
    end
    -- The oldest entries go when no model could consolidate them for long.
    while size > tonumber(ARGV[18]) and redis.call('LLEN', KEYS[7]) > 1 do
      size = redis.call('HINCRBY', session, 'archive', -#redis.call('LPOP', KEYS[7]))
      dropped = dropped + 1
    end
    if dropped > 0 then
      count_up(session, 'archive_mark', dropped)
    end
    redis.call('PEXPIRE', KEYS[7], ARGV[7])
    if redis.call('EXISTS', KEYS[7]) == 1 then
      -- The sweep finds the session, in case the caller dies before it queues the job.
      guarded('ZADD', KEYS[13], now, name)
    end
  else
    -- 'forget': a consolidation under way finds other marks and writes nothing.
    count_up(session, 'archive_mark', redis.call('LLEN', KEYS[7]))
    redis.call('DEL', KEYS[7], KEYS[12])
    redis.call('HDEL', session, 'archive')
    if redis.call('EXISTS', KEYS[11]) == 1 then
      -- The empty memory stays for a day: its version tells a writer that began before that it
      -- changed.
      set_memory(KEYS[11], '')
      redis.call('HDEL', KEYS[11], 'log')
      redis.call('PEXPIRE', KEYS[11], 86400000)
    end
    guarded('ZREM', KEYS[14], ARGV[16])
    drop_schedules(name)
  end
  redis.call('DEL', KEYS[6])
  -- The same for a consolidation of the conversation itself.
  count_up(session, 'mark', entries)
-- The answer names a turn, so that turn must still be at the head.
elseif op == 'stop' then
  local head = redis.call('XRANGE', inbox, '-', '+', 'COUNT', 1)[1]
  local n = head and string.match(head[1], '%d+') or '0'
  if n ~= ARGV[17] then
    return {-1, 0, 0}
  end
  cancel_subagents(string.sub(member, 6), '', '')
  stop_head(session, inbox, KEYS[3], KEYS[4], KEYS[15], member, ARGV[12])
elseif op == 'cancel' then
  cancel_subagents(string.sub(member, 6), '', ARGV[21])
-- Codes below 0 are moved below -10, apart from this script's own.
elseif op == 'approve' then
  local outcome = resolve_approval({
    member = member, queue = KEYS[3], leases = KEYS[4], wake = KEYS[15], session = session, ledger = KEYS[5],
    log = KEYS[8], live = KEYS[9], id = ARGV[22], yes = ARGV[23], request = ARGV[24], sender = ARGV[25],
    digest = ARGV[26], line = ARGV[27], log_ms = ARGV[8],
  })
  if outcome < 0 then return {outcome - 10, 0, 0} end
elseif op == 'unschedule' then
  drop_schedule(string.sub(member, 6), ARGV[20])
-- '' removes the session's own choice.
elseif op == 'preset' or op == 'busy' then
  local chosen = op == 'preset' and ARGV[15] or ARGV[19]
  if chosen == '' then
    redis.call('HDEL', session, op)
  else
    redis.call('HSET', session, op, chosen)
  end
end
-- The command itself, for the person's other devices.
local seq = 0
if ARGV[9] ~= '' then
  seq = add_line(session, KEYS[8], KEYS[9], ARGV[9], ARGV[8])
end
add_line(session, KEYS[8], KEYS[9], ARGV[10], ARGV[8])
-- A command moves its chat up in the list, as a message does.
if KEYS[10] ~= '' then
  list_chat(session, KEYS[10], ARGV[14], '', ARGV[7], now)
end
redis.call('PEXPIRE', session, ARGV[7])
-- Number 0: no turn.
remember_seen(ARGV[5], tonumber(ARGV[6]), ARGV[4], now, '0:' .. seq)
return {1, seq, dropped}
