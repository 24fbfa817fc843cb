#!lua flags=allow-oom
-- Let messages that wait join the running turn: those right behind it that were marked for it when they came. They stay
-- in the inbox until the turn ends; an entry of the ledger says where in the turn they stand. The same step again
-- answers what it took then.
-- KEYS   1 leases  2 session  3 inbox  4 ledger  5 queue  6 wake  7 live
-- ARGV   1 member  2 lease  3 the turn  4 step, counted from 1  5 '1' = the turn begins: what was marked like its own
--        message joins, too  6 cap of the ledger in bytes  7 newest schema version known  8 how many at most
-- returns {1 taken | 0 nothing to take | -1 the lease is lost | -2 the turn was told to stop, {number, record of each},
--         the entry of the ledger}
local session, inbox, ledger, n = KEYS[2], KEYS[3], KEYS[4], ARGV[3]
if not holds(KEYS[1], ARGV[1], ARGV[2]) then return {-1, {}, ''} end

local function at(number)
  return redis.call('XRANGE', inbox, number .. '-0', number .. '-0')[1]
end

local have, step = redis.call('XLEN', ledger), tonumber(ARGV[4])
if have >= step then
  local record = redis.call('XRANGE', ledger, step .. '-0', step .. '-0')[1][2][2]
  local known = cmsgpack.unpack(record)
  local found = {}
  for _, number in ipairs(known.t == 'taken' and known.messages or {}) do
    found[#found + 1] = integer(number)
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
local told = redis.call('HMGET', session, 'stop', 'cut')
if told[1] == n or tonumber(told[2] or 0) > tonumber(n) then
  return {-2, {}, ''}  -- what waits is no part of what was stopped
end

local joined = taken_by(session, n)
local last = joined[#joined] or n
local mark = field(at(n), 'b')
local found, numbers = {}, {}
for _, entry in ipairs(redis.call('XRANGE', inbox, '(' .. last .. '-0', '+', 'COUNT', ARGV[8])) do
  local its = field(entry, 'b')
  local joins = its == 'steer' or (ARGV[5] == '1' and its and its == mark)
  if not joins or tonumber(field(entry, 'v')) > tonumber(ARGV[7]) then break end
  last = string.match(entry[1], '%d+')
  joined[#joined + 1] = last
  numbers[#numbers + 1] = tonumber(last)
  found[#found + 1] = last
  found[#found + 1] = field(entry, 'm')
end
if #numbers == 0 then return {0, {}, ''} end

local record = cmsgpack.pack({t = 'taken', turn = tonumber(n), messages = numbers, at = now_ms()})
local size = redis.call('HINCRBY', session, 'ledger', #record)
if size > tonumber(ARGV[6]) then
  redis.call('HINCRBY', session, 'ledger', -#record)
  return {0, {}, ''}  -- they make a turn of their own
end
redis.call('XADD', ledger, ARGV[4] .. '-0', 'm', record)
redis.call('HSET', session, 'taken', n .. ' ' .. table.concat(joined, ' '))
redis.call('PUBLISH', KEYS[7], cjson.encode({type = 'joined', turn = tonumber(n), messages = numbers}))
return {1, found, record}
