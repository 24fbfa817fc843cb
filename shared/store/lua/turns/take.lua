#!lua flags=allow-oom
-- durable
-- Lets waiting messages join the running turn: those right after it that were marked for it when
-- they came. They stay in the inbox until the turn ends; an entry of the ledger records at which
-- step they joined. The same step again answers what it took then.
-- n              the turn
-- step           counted from 1
-- at_start       '1' = the turn begins: what was marked like its own message joins, too
-- cap_bytes      of the ledger
-- known_version  newest schema version that the worker knows
-- most           how many messages at most
-- returns {'taken' | 'none' | 'lost' | 'stopped' = the turn was told to stop, {number, record of
--         each}, the entry of the ledger}
local leases, session, inbox, ledger, queue, wake_list, live = unpack(KEYS)
local member, lease, n, step, at_start, cap_bytes, known_version, most = unpack(ARGV)
if not holds_lease(leases, member, lease) then return {'lost', {}, ''} end

-- The inbox entry of one message, by its number.
local function at(number)
  return redis.call('XRANGE', inbox, number .. '-0', number .. '-0')[1]
end
step = tonumber(step)
local have = redis.call('XLEN', ledger)
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
  return {#found > 0 and 'taken' or 'none', found, record}
end
if have < step - 1 then
  -- As in ledger.lua: the server lost steps, and a successor begins where they really end.
  redis.call('HDEL', leases, member)
  redis.call('ZADD', queue, now_ms(), member)
  wake(wake_list)
  return {'lost', {}, ''}
end
local fields = redis.call('HMGET', session, 'stop', 'cut')
-- What waits behind a stopped turn is not part of it.
if fields[1] == n or (parse_count(fields[2]) or 0) > tonumber(n) then
  return {'stopped', {}, ''}  -- what waits is no part of what was stopped
end
local joined = joined_messages(session, n)
-- Join only right behind what the turn has already.
local last = joined[#joined] or n
-- At the start of a turn, messages with its own mark join: 'merge' with 'merge', 'joins' likewise.
local mark = field(at(n), 'b')
local found, numbers = {}, {}
-- In order, and only while each one may join: none is answered before an older one.
for _, entry in ipairs(redis.call('XRANGE', inbox, '(' .. last .. '-0', '+', 'COUNT', most)) do
  local entry_mark = field(entry, 'b')
  local joins = entry_mark == 'steer' or (at_start == '1' and entry_mark and entry_mark == mark)
  -- A record for a newer worker ends the run, too.
  if not joins or (parse_count(field(entry, 'v')) or 0) > tonumber(known_version) then break end
  last = string.match(entry[1], '%d+')
  joined[#joined + 1] = last
  numbers[#numbers + 1] = tonumber(last)
  found[#found + 1] = last
  found[#found + 1] = field(entry, 'm')
end
if #numbers == 0 then return {'none', {}, ''} end
-- The same shape as `JoinEntry` in shared/messages/transcript.py.
local record = cmsgpack.pack({t = 'taken', turn = tonumber(n), messages = numbers, at = now_ms()})
local size = count_up(session, 'ledger', #record)
-- No room in the ledger: the messages get a turn of their own.
if size > tonumber(cap_bytes) then
  redis.call('HINCRBY', session, 'ledger', -#record)
  return {'none', {}, ''}  -- they make a turn of their own
end
redis.call('XADD', ledger, step .. '-0', 'm', record)
-- From here on these messages end with this turn.
redis.call('HSET', session, 'taken', n .. ' ' .. table.concat(joined, ' '))
-- Followers of the chat show which messages are being answered.
redis.call('PUBLISH', live, cjson.encode({type = 'joined', turn = tonumber(n), messages = numbers}))
return {'taken', found, record}
