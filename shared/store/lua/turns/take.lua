#!lua flags=allow-oom
-- Lets waiting messages join the running turn: those right after it that were marked for it when
-- they came. They stay in the inbox until the turn ends; an entry of the ledger records at which
-- step they joined. The same step again answers what it took then.
-- KEYS   1 leases  2 session  3 inbox  4 ledger  5 queue  6 wake  7 live
-- ARGV   1 member  2 lease  3 the turn  4 step, counted from 1  5 '1' = the turn begins: what was marked like its own
--        message joins, too  6 cap of the ledger in bytes  7 newest schema version known  8 how many at most
-- returns {1 taken | 0 nothing to take | -1 the lease is lost | -2 the turn was told to stop, {number, record of each},
--         the entry of the ledger}
local session, inbox, ledger, n = KEYS[2], KEYS[3], KEYS[4], ARGV[3]
if not holds_lease(KEYS[1], ARGV[1], ARGV[2]) then return {-1, {}, ''} end

-- The inbox entry of one message, by its number.
local function at(number)
  return redis.call('XRANGE', inbox, number .. '-0', number .. '-0')[1]
end
local have, step = redis.call('XLEN', ledger), tonumber(ARGV[4])
-- The step was written before: answer what it took then.
if have >= step then
  local record = redis.call('XRANGE', ledger, step .. '-0', step .. '-0')[1][2][2]
  local known = cmsgpack.unpack(record)
  local found = {}
  for _, number in ipairs(known.t == 'taken' and known.messages or {}) do
    found[#found + 1] = integer(number)
    -- Messages that joined stay in the inbox until the turn ends, so their records are still there.
    found[#found + 1] = field(at(integer(number)), 'm')
  end
  return {#found > 0 and 1 or 0, found, record}
end
if have < step - 1 then
  -- As in ledger.lua: the server lost steps, and a successor begins where they really end.
  redis.call('HDEL', KEYS[1], ARGV[1])
  redis.call('ZADD', KEYS[5], now_ms(), ARGV[1])
  wake(KEYS[6])
  return {-1, {}, ''}
end
local fields = redis.call('HMGET', session, 'stop', 'cut')
-- What waits behind a stopped turn is not part of it.
if fields[1] == n or (parse_count(fields[2]) or 0) > tonumber(n) then
  return {-2, {}, ''}  -- what waits is no part of what was stopped
end
local joined = joined_messages(session, n)
-- Join only right behind what the turn has already.
local last = joined[#joined] or n
-- At the start of a turn, messages with its own mark join: 'merge' with 'merge', 'joins' likewise.
local mark = field(at(n), 'b')
local found, numbers = {}, {}
-- In order, and only while each one may join: none is answered before an older one.
for _, entry in ipairs(redis.call('XRANGE', inbox, '(' .. last .. '-0', '+', 'COUNT', ARGV[8])) do
  local entry_mark = field(entry, 'b')
  local joins = entry_mark == 'steer' or (ARGV[5] == '1' and entry_mark and entry_mark == mark)
  -- A record for a newer worker ends the run, too.
  if not joins or (parse_count(field(entry, 'v')) or 0) > tonumber(ARGV[7]) then break end
  last = string.match(entry[1], '%d+')
  joined[#joined + 1] = last
  numbers[#numbers + 1] = tonumber(last)
  found[#found + 1] = last
  found[#found + 1] = field(entry, 'm')
end
if #numbers == 0 then return {0, {}, ''} end
-- The same shape as `JoinEntry` in shared/messages/transcript.py.
local record = cmsgpack.pack({t = 'taken', turn = tonumber(n), messages = numbers, at = now_ms()})
local size = count_up(session, 'ledger', #record)
-- No room in the ledger: the messages get a turn of their own.
if size > tonumber(ARGV[6]) then
  redis.call('HINCRBY', session, 'ledger', -#record)
  return {0, {}, ''}  -- they make a turn of their own
end
redis.call('XADD', ledger, ARGV[4] .. '-0', 'm', record)
-- From here on these messages end with this turn.
redis.call('HSET', session, 'taken', n .. ' ' .. table.concat(joined, ' '))
-- Followers of the chat show which messages are being answered.
redis.call('PUBLISH', KEYS[7], cjson.encode({type = 'joined', turn = tonumber(n), messages = numbers}))
return {1, found, record}
