#!lua flags=allow-oom
-- with delivery
-- Leases chats whose lines are to be delivered, or whose turn is under way, the longest due first.
-- KEYS   1 outqueue  2 outleases  3 outwaits  4 pause  5 token
-- ARGV   1 owner  2 lease ms  3 how many  4 '1' = leave those whose owner is late by less than half a lease (grace),
--        '2' = those that have an owner at all  5 lines to hand over  6 keep the token ms
-- returns {ms until another one may be taken (-1 = there is none), then of each {session, token, '1' if its owner was
--         lost, lines given up because too many waited, {{line, ms it waits, record} ...}, posts of the first that are
--         there, 1 = the next may be there, bubble, 1 = closed, notes, tries, turn at the head of the inbox,
--         1 = nobody waits for it, meant, shown},
--         and of broken ones {session, '', error}; {'clock', '', ms} when the server's clock fell back}
local queue, leases, waits = KEYS[1], KEYS[2], KEYS[3]
local lease_ms, wanted = tonumber(ARGV[2]), tonumber(ARGV[3])
-- One reading of the clock for tokens and deadlines.
local us = now_us()
local now = math.floor(us / 1000)
-- A pause of the platform holds for every replica; nothing is leased meanwhile.
local paused = pause_left(KEYS[4])
if paused > 0 then return {paused} end
-- Tokens come from one counter for the whole channel.
local leased, token = {}, tonumber(redis.call('GET', KEYS[5]) or 0)
-- Leases one chat, or removes it from the queue when nothing is left to do.
local function lease_chat(name, old_lease)
  local state, box, inbox = key('out', name), key('outbox', name), key('inbox', name)
  -- Neither lines nor a turn.
  if redis.call('EXISTS', box, inbox) == 0 then
    remove_from_outqueue(queue, leases, state, waits, name, false)
    return
  end
  -- The token grows even when the counter or the clock lost its latest writes; the owner's nonce
  -- covers the case that both did.
  token = math.max(token + 1, us)
  local lease = ARGV[1] .. ':' .. integer(token)
  -- The mark of a post under way is compared with the new lease, which it cannot be.
  local row = chat_row(state, box, inbox, lease, ARGV[5], now)
  -- Lines that were given up since the last lease: the gateway adds them to its metrics, once.
  local dropped = redis.call('HGET', state, 'full')
  if dropped then
    redis.call('HDEL', state, 'full')
  end
  redis.call('ZADD', queue, integer(now + lease_ms), name)
  redis.call('HSET', leases, name, lease)
  leased[#leased + 1] = {name, integer(token), old_lease and '1' or '0', dropped or '0', unpack(row)}
end
local fell_ms = repair_clock({queue}, lease_ms, now)
-- In grace an owner that is late keeps its chat for half a lease, from its deadline, or from now
-- ('2': Redis was unavailable, and the owner may have been unable to renew at all).
local grace_ends, scan = nil, ARGV[4] ~= '0' and 1000 or math.max(32, wanted)
-- At least 32 members, because some are left in grace or turn out to be done.
local found = redis.call('ZRANGEBYSCORE', queue, '-inf', now, 'WITHSCORES', 'LIMIT', 0, scan)
-- Members and scores alternate.
for i = 1, #found, 2 do
  if #leased == wanted then break end
  local name, due = found[i], tonumber(found[i + 1])
  local old_lease = redis.call('HGET', leases, name)
  local since = ARGV[4] == '2' and now or due
  if old_lease and ARGV[4] ~= '0' and now - since < lease_ms / 2 then
    -- The caller learns when the first of these may be taken.
    grace_ends = grace_ends or since + lease_ms / 2
  else
    local ok, fault = pcall(lease_chat, name, old_lease)
    if not ok then
      -- A broken key of one chat must not block the others: it is reported and tried again in a
      -- minute.
      redis.call('ZADD', queue, integer(now + 60000), name)
      redis.call('HDEL', leases, name)
      leased[#leased + 1] = {name, '', type(fault) == 'table' and fault.err or tostring(fault)}
    end
  end
end
-- Only when a token was used.
if token >= us then
  redis.call('SET', KEYS[5], integer(token), 'PX', ARGV[6])
end
-- When the next chat is due: those left in grace are due already, so look past them.
local from = grace_ends and #leased < wanted and '(' .. integer(now) or '-inf'
local next = tonumber(redis.call('ZRANGEBYSCORE', queue, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2] or math.huge)
next = math.min(grace_ends or math.huge, next)
if fell_ms > 0 then
  leased[#leased + 1] = {'clock', '', integer(fell_ms)}
end
table.insert(leased, 1, next == math.huge and -1 or math.max(0, math.ceil(next - now)))
return leased
