#!lua
-- Registers a request over HTTP, or finds the one that was registered under the same key.
-- KEYS   1 answer ('' = the request has no key)  2 session ('' = one of this request alone)  3 ephemeral sessions
-- ARGV   1 hash of what is asked  2 a ticket, if it is new  3 what the name of a session of one request begins with
--        4 keep all this ms, unless `Requests.mark_accepted` says more
-- returns {1 begun | 0 known | -1 the key is of another request, ticket, when it began in ms,
--         number of the last line of its chat's log then, answer ('' = none yet)}
local now = now_ms()
if KEYS[1] ~= '' then
  local asked, ticket, at, after, answer = unpack(
    redis.call('HMGET', KEYS[1], 'asked', 'ticket', 'at', 'after', 'answer'))
  -- The key is known: the same request, or another one under the same key.
  if ticket then
    return {asked == ARGV[1] and 0 or -1, ticket, tonumber(at), tonumber(after), answer or ''}
  end
end
-- Lines after this one may hold the answer.
local after = KEYS[2] ~= '' and tonumber(redis.call('HGET', KEYS[2], 'log') or 0) or 0
if KEYS[1] ~= '' then
  redis.call('HSET', KEYS[1], 'asked', ARGV[1], 'ticket', ARGV[2], 'at', integer(now), 'after', after)
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
end
-- A session of its own is cleaned up even if the gateway dies at this moment.
if KEYS[2] == '' then
  redis.call('ZADD', KEYS[3], integer(now + tonumber(ARGV[4])), ARGV[3] .. ARGV[2])
end
return {1, ARGV[2], now, after, ''}
