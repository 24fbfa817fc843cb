#!lua
-- Take a message into its session's inbox, once, and make the session due.
-- KEYS   1 inbox  2 session  3 queue  4 wake  5 log  6 live  7 chats ('' = the channel keeps no list)
--        8 the sender's brake  9 leases
-- ARGV   1 record  2 schema version  3 dedupe id  4 prefix of the seen hashes  5 days an id is remembered
--        6 member  7 inbox cap  8 cap of waiting sessions  9 keep the session ms  10 keep the log ms
--        11 line for the chat's log ('' = none)  12 chat id  13 title
--        14 memory scope ('' = the chat's own, '=' = as it is)
--        15 '1' = only count it: it is a command, which is answered elsewhere
--        16 messages of this sender a minute (0 = no limit)
--        17 messages of bots without a person between them that pause the chat for bots (0 = no limit)  18 within ms
--        19 who wrote it: 'bot', 'person', or '' = Shoal itself  20 SHA-1 of the text ('' = too short to be an echo)
--        21 what is done while a turn runs, unless the session has a choice of its own: 'queue', 'steer', 'merge',
--        'interrupt', 'reject'; '' = queue, whatever was chosen  22 '1' = it joins others of its kind
--        23 window of 'merge' ms  24 control channel  25 line of 'reject', with {ahead} in its text
--        26 whose turn it is: a person's, 'background', or '' = its chat's own
-- returns {1 taken | 0 known | 2 rejected, and told so | -1 inbox full | -2 too many sessions, n, ahead, seq}
--         and {-3 too many of this sender | -4 too many of bots, ms to wait, 0, 0}
local inbox, session, queue = KEYS[1], KEYS[2], KEYS[3]
local id, prefix, days, member = ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6]
local name = string.sub(KEYS[5], 14)
local channel = delivered(name)

local now = now_ms()
local function ahead_of(n)
  local first = redis.call('XRANGE', inbox, '-', '+', 'COUNT', 1)[1]
  local head = first and string.match(first[1], '%d+')
  if not head or tonumber(n) <= tonumber(head) then return 0 end
  -- Numbers have gaps only where a message was withdrawn: without one, nobody's text need be read.
  local ahead = tonumber(n) - tonumber(head)
  local newest = tonumber(redis.call('HGET', session, 'n') or 0)
  if redis.call('XLEN', inbox) ~= newest - tonumber(head) + 1 then
    ahead = #redis.call('XRANGE', inbox, '-', '(' .. n .. '-0')
  end
  for _, other in ipairs(taken_by(session, head)) do
    if other == n then return 0 end
    if tonumber(other) < tonumber(n) then ahead = ahead - 1 end
  end
  return ahead
end

local first = seen_before(prefix, days, id, now)
if first then
  local n, seq = string.match(first, '(%d+):(%d+)')
  return {0, tonumber(n), ahead_of(n), tonumber(seq)}
end

local told = redis.call('HMGET', session, 'n', 'busy', 'bots', 'scope', 'taken', 'kept')

-- What we said ourselves a moment ago came from no person.
local function is_echo()
  if ARGV[20] == '' then return false end
  if channel and string.find(redis.call('GET', key('said', name)) or '', ARGV[20], 1, true) then return true end
  for _, entry in ipairs(redis.call('XREVRANGE', KEYS[5], '+', '-', 'COUNT', 2)) do
    local ok, line = pcall(cmsgpack.unpack, entry[2][2])
    if ok and type(line) == 'table' and line.t == 'out' and type(line.content) == 'string'
        and redis.sha1hex(line.content) == ARGV[20] then
      return true
    end
  end
  return false
end

local bots = tonumber(ARGV[17])
local by_bot = bots > 0 and ARGV[19] ~= '' and (ARGV[19] == 'bot' or is_echo())
local stamps = {}
if by_bot then
  local state = told[3] or ''
  for stamp in string.gmatch(state, '%d+') do
    stamps[#stamps + 1] = stamp
  end
  if string.match(state, '^paused') then return {-4, 0, 0, 0} end
  if #stamps >= bots and now - tonumber(stamps[#stamps - bots + 1]) < tonumber(ARGV[18]) then
    redis.call('HSET', session, 'bots', 'paused')
    return {-4, 0, 0, 0}
  end
end

-- A minute's messages may come at once; the brake holds the time until which what came is paid for.
local per_minute, paid_until = tonumber(ARGV[16]), 0
if per_minute > 0 and ARGV[19] ~= '' then
  paid_until = math.max(now, tonumber(redis.call('GET', KEYS[8])) or 0) + 60000 / per_minute
  if paid_until - now > 60000 then
    return {-3, math.ceil(paid_until - now - 60000), 0, 0}
  end
end

local function count_it()
  if paid_until > 0 then
    redis.call('SET', KEYS[8], integer(paid_until), 'PX', integer(math.max(1, paid_until - now)))
  end
  if by_bot then
    stamps[#stamps + 1] = integer(now)
    redis.call('HSET', session, 'bots', table.concat(stamps, ' ', math.max(1, #stamps - bots + 1)))
    redis.call('PEXPIRE', session, ARGV[9])
  elseif ARGV[19] ~= '' and told[3] then
    redis.call('HDEL', session, 'bots')
  end
  if channel and ARGV[19] == 'person' then open_chat(name) end
end

if ARGV[15] == '1' then
  count_it()
  return {1, 0, 0, 0}
end

local KNOWN = {queue = true, steer = true, merge = true, interrupt = true, reject = true}
local busy = 'queue'
if ARGV[21] ~= '' then
  local chosen = told[2]
  busy = chosen and KNOWN[chosen] and chosen or ARGV[21]
end

local waiting = redis.call('XLEN', inbox)
local ahead = waiting
if waiting > 0 and told[5] then
  local head = redis.call('XRANGE', inbox, '-', '+', 'COUNT', 1)[1]
  ahead = waiting - #taken_told(told[5], string.match(head[1], '%d+'))
end
-- Whether a message of a person waits or is answered; a tick or the report of a subagent is none.
local function before_it_a_person()
  local from = '-'
  repeat
    local found = redis.call('XRANGE', inbox, from, '+', 'COUNT', 8)
    for _, one in ipairs(found) do
      if field(one, 'p') ~= 'background' and field(one, 'b') ~= 'joins' then return true end
      from = '(' .. one[1]
    end
  until #found < 8
  return false
end

if busy == 'reject' and waiting > 0 and before_it_a_person() then
  count_it()
  local seq = 0
  if ARGV[11] ~= '' then
    seq = add_line(session, KEYS[5], KEYS[6], ARGV[11], ARGV[10])
  end
  local note = cmsgpack.unpack(ARGV[25])
  note.content = string.gsub(note.content, '{ahead}', tostring(ahead))
  add_line(session, KEYS[5], KEYS[6], cmsgpack.pack(note), ARGV[10])
  redis.call('PEXPIRE', session, ARGV[9])
  note_seen(prefix, days, id, now, '0:' .. seq)
  return {2, 0, ahead, seq}
end
if waiting >= tonumber(ARGV[7]) then
  return {-1, 0, waiting, 0}
end
if waiting == 0 and redis.call('ZCARD', queue) + redis.call('ZCARD', BACKGROUND) >= tonumber(ARGV[8]) then
  return {-2, 0, 0, 0}
end

count_it()
local n = tonumber(told[1] or 0) + 1
-- What joins what is settled here, once: every worker finds it with the message, whatever its own settings are.
local due, mark = now, ARGV[22] == '1' and 'joins' or (busy == 'steer' or busy == 'merge') and busy or ''
local entry = {'v', ARGV[2], 'm', ARGV[1]}
local function note(name, value)
  entry[#entry + 1] = name
  entry[#entry + 1] = value
end
if mark ~= '' then note('b', mark) end
if mark == 'merge' then
  due = now + tonumber(ARGV[23])
  note('d', integer(due))
end
if ARGV[26] ~= '' then note('p', ARGV[26]) end
if busy == 'interrupt' and waiting > 0 then note('c', '1') end
redis.call('XADD', inbox, n .. '-0', unpack(entry))
local seq = 0
if ARGV[11] ~= '' then
  seq = add_line(session, KEYS[5], KEYS[6], ARGV[11], ARGV[10])
end
if KEYS[7] ~= '' then
  list_chat(session, KEYS[7], ARGV[12], ARGV[13], ARGV[9], now)
end
if ARGV[14] ~= '' and ARGV[14] ~= '=' then
  redis.call('HSET', session, 'n', n, 'scope', ARGV[14])
else
  redis.call('HSET', session, 'n', n)
end
if ARGV[14] == '' and told[4] then
  redis.call('HDEL', session, 'scope')
end
if now - tonumber(told[6] or 0) > tonumber(ARGV[9]) / 50 then
  redis.call('PEXPIRE', session, ARGV[9])
end
note_seen(prefix, days, id, now, n .. ':' .. seq)
queue_up(queue, KEYS[4], session, member, n, ARGV[26], waiting > 0, due, now)
if channel then attend(name, channel, now, ARGV[10]) end
if busy == 'interrupt' and waiting > 0 then
  -- Every turn before this one ends: the one at the head now, others when their time comes (`cut`).
  redis.call('HSET', session, 'cut', n)
  stop_head(session, inbox, queue, KEYS[9], KEYS[4], member, ARGV[24])
end
return {1, n, ahead, seq}
