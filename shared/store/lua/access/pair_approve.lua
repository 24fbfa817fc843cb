#!lua flags=allow-oom
-- with trail
-- Lets in the person who was given this code; each code counts once. Wrong guesses are counted for
-- the one who makes them; after too many a right one does not count either.
-- KEYS   1 open codes  2 wrong guesses of who lets in
-- ARGV   1 hash of the code  2 who lets in  3 request: the same for each try  4 only people of this channel ('' = of any)
--        5 wrong guesses  6 within ms  7 people let in to one channel  8 line for the chat of who is let in
--        9 keep its session ms, if nobody keeps it longer  10 keep its log ms  11 lines of the audit record  12 ms of it
-- returns {1 let in | 0 let in by an earlier try of this request, record}
--         {-1 too many wrong guesses, ms to wait} {-2 no such code, guesses left} {-3 used} {-4 too late}
--         {-5 too many are let in}
local now = now_ms()
-- Every outcome leaves a line in the audit record, except a repeated call.
local function audit(outcome, about)
  audit_line(now, ARGV[11], ARGV[12],
    {'kind', 'pairing', 'outcome', outcome, 'actor', ARGV[2], 'channel', ARGV[4], 'about', about})
end
-- Codes are stored as hashes: a dump of the server shows no code that could be used.
local packed = redis.call('HGET', KEYS[1], ARGV[1])
local one = packed and cmsgpack.unpack(packed)
-- The reply to an earlier call of this request was lost.
if one and one.request == ARGV[3] then return {0, packed} end
-- Wrong guesses count within a sliding window, for the one who guesses.
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', integer(now - tonumber(ARGV[6])))
-- Asked before the code is compared: a right guess after too many wrong ones does not count either.
if redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[5]) then
  local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2]
  audit('too_many_guesses', '')
  return {-1, tonumber(first) + tonumber(ARGV[6]) - now}
end
-- An unknown code, or one of another channel than asked for.
if not one or (ARGV[4] ~= '' and one.channel ~= ARGV[4]) then
  redis.call('ZADD', KEYS[2], integer(now), ARGV[3])
  redis.call('PEXPIRE', KEYS[2], ARGV[6])
  audit('wrong_code', '')
  return {-2, tonumber(ARGV[5]) - redis.call('ZCARD', KEYS[2])}
end
local about = one.channel .. ':' .. one.sender
-- A known code that cannot be used is no guess.
local refused = one.request ~= '' and -3 or one.expires_at <= now and -4
  or redis.call('HLEN', key('pair', one.channel)) >= tonumber(ARGV[7]) and -5
if refused then
  audit(({[-3] = 'used_code', [-4] = 'late_code', [-5] = 'full'})[refused], about)
  return {refused}
end
-- From here on the code is used.
one.by, one.at, one.request = ARGV[2], now, ARGV[3]
packed = cmsgpack.pack(one)
redis.call('HSET', key('pair', one.channel), one.sender, packed)
redis.call('SADD', 'shoal:pair', one.channel)
redis.call('HSET', KEYS[1], ARGV[1], packed)  -- it stays until its end, so that a second use is known as one
local session = key('session', one.session)
add_line(session, key('outbox', one.session), key('live', one.session), ARGV[8], ARGV[10])
if redis.call('PTTL', session) < tonumber(ARGV[9]) then redis.call('PEXPIRE', session, ARGV[9]) end
audit('let_in', about)
return {1, packed}
