#!lua flags=allow-oom
-- durable
-- Lets in the person who was given this code; each code counts once. Wrong guesses are counted for
-- the one who makes them; after too many a right one does not count either.
-- tries         wrong guesses of who lets in
-- digest        hash of the code
-- by            who lets in
-- request       the same for each try
-- channel       only people of this channel ('' = of any)
-- most_guesses  wrong ones within guesses_ms
-- most_people   let in to one channel
-- line          for the chat of who is let in
-- keep_...      its session, if nobody keeps it longer, and its log
-- audit_...     how much of the audit record is kept
-- returns {'let_in' | 'known' = by an earlier try of this request, record}
--         | {'guesses' = too many wrong ones, ms to wait} | {'unknown', guesses left} | {'used'} |
--         {'late'}
--         | {'full' = too many are let in}
local PAIRING, tries = unpack(KEYS)
local digest, by, request, channel, most_guesses, guesses_ms, most_people, line, keep_session_ms,
  keep_log_ms, audit_lines, audit_ms = unpack(ARGV)
local now = now_ms()
-- Every outcome leaves a line in the audit record, except a repeated call.
local function audit(outcome, about)
  audit_line(now, audit_lines, audit_ms,
    {'kind', 'pairing', 'outcome', outcome, 'actor', by, 'channel', channel, 'about', about})
end
-- Codes are stored as hashes: a dump of the server shows no code that could be used.
local packed = redis.call('HGET', PAIRING, digest)
local one = packed and cmsgpack.unpack(packed)
-- The reply to an earlier call of this request was lost.
if one and one.request == request then return {'known', packed} end
-- Wrong guesses count within a sliding window, for the one who guesses.
redis.call('ZREMRANGEBYSCORE', tries, '-inf', integer(now - tonumber(guesses_ms)))
-- Asked before the code is compared: a right guess after too many wrong ones does not count either.
if redis.call('ZCARD', tries) >= tonumber(most_guesses) then
  local first = redis.call('ZRANGE', tries, 0, 0, 'WITHSCORES')[2]
  audit('too_many_guesses', '')
  return {'guesses', tonumber(first) + tonumber(guesses_ms) - now}
end
-- An unknown code, or one of another channel than asked for.
if not one or (channel ~= '' and one.channel ~= channel) then
  redis.call('ZADD', tries, integer(now), request)
  redis.call('PEXPIRE', tries, guesses_ms)
  audit('wrong_code', '')
  return {'unknown', tonumber(most_guesses) - redis.call('ZCARD', tries)}
end
local about = one.channel .. ':' .. one.sender
-- A known code that cannot be used is no guess.
local refused = one.request ~= '' and 'used' or one.expires_at <= now and 'late'
  or redis.call('HLEN', key('pair', one.channel)) >= tonumber(most_people) and 'full'
if refused then
  audit(({used = 'used_code', late = 'late_code', full = 'full'})[refused], about)
  return {refused}
end
-- From here on the code is used.
one.by, one.at, one.request = by, now, request
packed = cmsgpack.pack(one)
redis.call('HSET', key('pair', one.channel), one.sender, packed)
redis.call('SADD', PREFIX .. 'pair', one.channel)
redis.call('HSET', PAIRING, digest, packed)  -- it stays until its end, so that a second use is known as one
local session = key('session', one.session)
add_line(session, key('outbox', one.session), key('live', one.session), line, keep_log_ms)
if redis.call('PTTL', session) < tonumber(keep_session_ms) then redis.call('PEXPIRE', session, keep_session_ms) end
audit('let_in', about)
return {'let_in', packed}
