#!lua
-- durable
-- Registers a request over HTTP, or finds the one that was registered under the same key.
-- request  its answer ('' = the request has no key)
-- own_session  '' = one of this request alone
-- asked    hash of what is asked
-- ticket   if it is new
-- prefix   what the name of a session of one request begins with
-- keep_ms  for all this, unless `Requests.mark_accepted` says more
-- returns {'begun' | 'known' | 'reused' = the key is of another request, ticket, when it began in
--         ms, number of the last line of its chat's log then, answer ('' = none yet)}
local request, own_session, EPHEMERAL = unpack(KEYS)
local asked, ticket, prefix, keep_ms = unpack(ARGV)
local now = now_ms()
if request ~= NO_KEY then
  local its, known, at, after, answer = unpack(
    redis.call('HMGET', request, 'asked', 'ticket', 'at', 'after', 'answer'))
  -- The key is known: the same request, or another one under the same key.
  if known then
    return {its == asked and 'known' or 'reused', known, tonumber(at), tonumber(after), answer or ''}
  end
end
-- Lines after this one may hold the answer.
local after = own_session ~= NO_KEY and tonumber(redis.call('HGET', own_session, 'log') or 0) or 0
if request ~= NO_KEY then
  redis.call('HSET', request, 'asked', asked, 'ticket', ticket, 'at', integer(now), 'after', after)
  redis.call('PEXPIRE', request, keep_ms)
end
-- A session of its own is cleaned up even if the gateway dies at this moment.
if own_session == NO_KEY then
  redis.call('ZADD', EPHEMERAL, integer(now + tonumber(keep_ms)), prefix .. ticket)
end
return {'begun', ticket, now, after, ''}
