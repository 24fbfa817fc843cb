#!lua flags=allow-oom
-- with delivery
-- Lease chats whose lines are to be delivered, or whose turn is under way: those that are due for longest.
-- KEYS   1 outqueue  2 outleases  3 outwaits  4 pause  5 token
-- ARGV   1 owner  2 lease ms  3 how many  4 '1' = leave those whose owner is late by less than half a lease (grace),
--        '2' = those that have an owner at all  5 lines to hand over  6 keep the token ms
-- returns {ms until another one may be taken (-1 = there is none), then of each {session, token, '1' if its owner was
--         lost, lines given up because too many waited, {{line, ms it waits, record} ...}, posts of the first that are
--         there, 1 = the next may be there, bubble, 1 = closed, notes, tries, turn at the head of the inbox,
--         1 = nobody waits for it, meant},
--         and of broken ones {session, '', error}}
local queue, leases, waits = KEYS[1], KEYS[2], KEYS[3]
local lease_ms, many = tonumber(ARGV[2]), tonumber(ARGV[3])
local us = now_us()
local now = math.floor(us / 1000)
local paused = redis.call('PTTL', KEYS[4])
if paused > 0 then return {paused} end

local taken, token = {}, tonumber(redis.call('GET', KEYS[5]) or 0)
local function take(name, lost)
  local state, box, inbox = key('out', name), key('outbox', name), key('inbox', name)
  if redis.call('EXISTS', box, inbox) == 0 then
    leave_outqueue(queue, leases, state, waits, name, false)
    return
  end
  -- Grows also when the counter or the clock lost its tail; the owner's nonce covers both at once.
  token = math.max(token + 1, us)
  local lease = ARGV[1] .. ':' .. integer(token)
  local row = chat_row(state, box, inbox, lease, ARGV[5], now)
  local full = redis.call('HGET', state, 'full')
  if full then
    redis.call('HDEL', state, 'full')
  end
  redis.call('ZADD', queue, integer(now + lease_ms), name)
  redis.call('HSET', leases, name, lease)
  taken[#taken + 1] = {name, integer(token), lost and '1' or '0', full or '0', unpack(row)}
end

-- In grace an owner that is late gets half a lease more, counted from the end of its own, or from now.
local left, scan = nil, ARGV[4] ~= '0' and 1000 or math.max(32, many)
local found = redis.call('ZRANGEBYSCORE', queue, '-inf', now, 'WITHSCORES', 'LIMIT', 0, scan)
for i = 1, #found, 2 do
  if #taken == many then break end
  local name, due = found[i], tonumber(found[i + 1])
  local lost = redis.call('HGET', leases, name)
  local since = ARGV[4] == '2' and now or due
  if lost and ARGV[4] ~= '0' and now - since < lease_ms / 2 then
    left = left or since + lease_ms / 2
  else
    local ok, fault = pcall(take, name, lost)
    if not ok then
      -- One chat with a broken key must not stand in everybody's way.
      redis.call('ZADD', queue, integer(now + 60000), name)
      redis.call('HDEL', leases, name)
      taken[#taken + 1] = {name, '', type(fault) == 'table' and fault.err or tostring(fault)}
    end
  end
end
if token >= us then
  redis.call('SET', KEYS[5], integer(token), 'PX', ARGV[6])
end
local from = left and #taken < many and '(' .. integer(now) or '-inf'
local next = tonumber(redis.call('ZRANGEBYSCORE', queue, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2] or math.huge)
next = math.min(left or math.huge, next)
table.insert(taken, 1, next == math.huge and -1 or math.max(0, math.ceil(next - now)))
return taken
