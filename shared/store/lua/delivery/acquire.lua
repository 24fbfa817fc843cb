#!lua flags=allow-oom
-- Leases chats whose lines are to be delivered, or whose turn is under way, the longest due first.
-- grace  '1' = leave those whose owner is late by less than half a lease, '2' = those that have an
--        owner at all
-- lines  lines of a chat to hand over
-- returns {ms until another one may be taken (-1 = there is none), then of each {session, token,
--         '1' if its owner was lost, lines given up because too many waited, {{line, ms it waits,
--         record} ...}, posts of the first that are there, 1 = the next may be there, bubble, 1 =
--         closed, notes, tries, turn at the head of the inbox, 1 = nobody waits for it, meant,
--         shown}, and of broken ones {session, '', error}; {'clock', '', ms} when the server's
--         clock fell back}
local outqueue, outleases, outwaits, outpause, outtoken = unpack(KEYS)
local owner, lease_ms, many, grace, lines, keep_token_ms = unpack(ARGV)
lease_ms, many = tonumber(lease_ms), tonumber(many)
-- One reading of the clock for tokens and deadlines.
local us = now_us()
local now = math.floor(us / 1000)
-- A pause of the platform holds for every replica; nothing is leased meanwhile.
local paused = pause_left(outpause)
if paused > 0 then return {paused} end
-- Tokens come from one counter for the whole channel.
local leased, token = {}, tonumber(redis.call('GET', outtoken) or 0)
-- A call hands over lines of about 2 MB, but always one chat: the server answers nothing else
-- while it copies. Other chats are due at once, for the next call or another gateway.
local CALL_BYTES, handed_over = 2097152, 0
-- Leases one chat, or removes it from the outqueue when nothing is left to do.
local function lease_chat(name, old_lease)
  local state, box, inbox = key('out', name), key('outbox', name), key('inbox', name)
  -- Neither lines nor a turn.
  if redis.call('EXISTS', box, inbox) == 0 then
    remove_from_outqueue(outqueue, outleases, state, outwaits, name, false)
    return
  end
  -- The token grows even when the counter or the clock lost its latest writes; the owner's nonce
  -- covers the case that both did.
  token = math.max(token + 1, us)
  local lease = owner .. ':' .. integer(token)
  -- The mark of a post under way is compared with the new lease, which it cannot be.
  local row = chat_row(state, box, inbox, lease, lines, now)
  for _, entry in ipairs(row[1]) do
    handed_over = handed_over + #(entry[3] or '')
  end
  -- Lines that were given up since the last lease: the gateway adds them to its metrics, once.
  local dropped = redis.call('HGET', state, 'full')
  if dropped then
    redis.call('HDEL', state, 'full')
  end
  redis.call('ZADD', outqueue, integer(now + lease_ms), name)
  redis.call('HSET', outleases, name, lease)
  leased[#leased + 1] = {name, integer(token), old_lease and '1' or '0', dropped or '0', unpack(row)}
end
local fell_ms = repair_clock({outqueue}, lease_ms, now)
-- In grace an owner that is late keeps its chat for half a lease, from its deadline, or from now
-- ('2': Redis was unavailable, and the owner may have been unable to renew at all).
local grace_ends, scan = nil, grace ~= '0' and 1000 or math.max(32, many)
-- At least 32 members, because some are left in grace or turn out to be done.
local found = redis.call('ZRANGEBYSCORE', outqueue, '-inf', now, 'WITHSCORES', 'LIMIT', 0, scan)
-- Members and scores alternate.
for i = 1, #found, 2 do
  if #leased == many or handed_over >= CALL_BYTES then break end
  local name, due = found[i], tonumber(found[i + 1])
  local old_lease = redis.call('HGET', outleases, name)
  local since = grace == '2' and now or due
  if old_lease and grace ~= '0' and now - since < lease_ms / 2 then
    -- The caller learns when the first of these may be taken.
    grace_ends = grace_ends or since + lease_ms / 2
  else
    local ok, fault = pcall(lease_chat, name, old_lease)
    if not ok then
      -- A broken key of one chat must not block the others: it is reported and tried again in a
      -- minute.
      redis.call('ZADD', outqueue, integer(now + 60000), name)
      redis.call('HDEL', outleases, name)
      leased[#leased + 1] = {name, '', type(fault) == 'table' and fault.err or tostring(fault)}
    end
  end
end
-- Only when a token was used.
if token >= us then
  redis.call('SET', outtoken, integer(token), 'PX', keep_token_ms)
end
-- When the next chat is due: those left in grace are due already, so look past them.
local read_all = #leased < many and handed_over < CALL_BYTES
local from = grace_ends and read_all and '(' .. integer(now) or '-inf'
local next = tonumber(redis.call('ZRANGEBYSCORE', outqueue, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2] or math.huge)
next = math.min(grace_ends or math.huge, next)
if fell_ms > 0 then
  leased[#leased + 1] = {'clock', '', integer(fell_ms)}
end
table.insert(leased, 1, next == math.huge and -1 or math.max(0, math.ceil(next - now)))
return leased
