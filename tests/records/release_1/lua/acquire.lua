#!lua flags=allow-oom
-- Lease the lowest due members of a queue.
-- KEYS   1 queue  2 leases  3 wake
-- ARGV   1 owner  2 lease ms  3 how many  4 '1' = leave entries that still have an owner (grace)
--        5 newest schema version known  6 history entries to hand over
-- returns a list of {member, token, waited ms, '1' if its owner was lost}, for turns with
--         {.., n, record, errors, crashes, stop, attempt, ms since the model went away, {ledger}, {history}} behind it,
--         and of {member, '', error} for entries whose keys are broken
local queue, leases = KEYS[1], KEYS[2]
local owner, lease_ms, many = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local grace, known, window = ARGV[4] == '1', tonumber(ARGV[5]), tonumber(ARGV[6])

local us = now_us()
local now = math.floor(us / 1000)
local taken = {}

local function lease(member, token)
  redis.call('ZADD', queue, now + lease_ms, member)
  redis.call('HSET', leases, member, owner .. ':' .. token)
end

local function take_turn(member, due, lost)
  local name = string.sub(member, 6)
  local session = key('session', name)
  local head = redis.call('XRANGE', key('inbox', name), '-', '+', 'COUNT', 1)[1]
  if not head then
    redis.call('ZREM', queue, member)
    redis.call('HDEL', leases, member)
    redis.call('DEL', key('ledger', name))
    return
  end
  if tonumber(head[2][2]) > known then
    -- For a newer worker. Moved on, or 32 of these would hide everybody behind them.
    redis.call('ZADD', queue, now + 1000, member)
    return
  end
  local crashes = lost and redis.call('HINCRBY', session, 'crashes', 1) or redis.call('HGET', session, 'crashes')
  -- Grows also when the counter or the clock lost its tail; the owner's nonce covers both at once.
  local token = integer(math.max((tonumber(redis.call('HGET', session, 'token')) or 0) + 1, us))
  redis.call('HSET', session, 'token', token)
  lease(member, token)
  local ledger = {}
  for i, entry in ipairs(redis.call('XRANGE', key('ledger', name), '-', '+')) do
    ledger[i] = entry[2][2]
  end
  local tries = redis.call('HINCRBY', session, 'tries', 1)
  local more = redis.call('HMGET', session, 'errors', 'stop', 'away')
  taken[#taken + 1] = {
    member, token, now - due, lost and '1' or '0',
    string.match(head[1], '%d+'), head[2][4], more[1] or '0', crashes or '0', more[2] or '0', tries, more[3] and now - tonumber(more[3]) or 0,
    ledger, redis.call('LRANGE', key('history', name), -window, -1),
  }
end

local function take_job(member, due, lost)
  local token = integer(us)
  lease(member, token)
  taken[#taken + 1] = {member, token, now - due, lost and '1' or '0'}
end

local scan = grace and 1000 or math.max(32, many)
local found = redis.call('ZRANGEBYSCORE', queue, '-inf', now, 'WITHSCORES', 'LIMIT', 0, scan)
for i = 1, #found, 2 do
  if #taken == many then break end
  local member, due = found[i], tonumber(found[i + 1])
  local lost = redis.call('HGET', leases, member)
  -- In grace an owner that is late gets half a lease more, counted from the end of its own.
  if not (lost and grace and now - due < lease_ms / 2) then
    local take = string.sub(member, 1, 5) == 'turn:' and take_turn or take_job
    local ok, fault = pcall(take, member, due, lost)
    if not ok then
      -- One session with a broken key must not stand in everybody's way.
      redis.call('ZADD', queue, now + 60000, member)
      redis.call('HDEL', leases, member)
      taken[#taken + 1] = {member, '', type(fault) == 'table' and fault.err or tostring(fault)}
    end
  end
end
-- A worker that left everything alone wakes nobody, or it would wake itself without end.
if #taken > 0 and #redis.call('ZRANGEBYSCORE', queue, '-inf', now, 'LIMIT', 0, 1) > 0 then
  wake(KEYS[3])
end
return taken
