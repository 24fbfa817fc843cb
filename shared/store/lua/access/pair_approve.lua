#!lua flags=allow-oom
-- with trail
-- Let in who has this code, once. Guesses are counted by whoever makes them, right ones that come after too many too.
-- KEYS   1 open codes  2 wrong guesses of who lets in
-- ARGV   1 hash of the code  2 who lets in  3 request: the same for each try  4 only people of this channel ('' = of any)
--        5 wrong guesses  6 within ms  7 people let in to one channel  8 line for the chat of who is let in
--        9 keep its session ms, if nobody keeps it longer  10 keep its log ms  11 lines of the audit record  12 ms of it
-- returns {1 let in | 0 let in by an earlier try of this request, record}
--         {-1 too many wrong guesses, ms to wait} {-2 no such code, guesses left} {-3 used} {-4 too late}
--         {-5 too many are let in}
local now = now_ms()
local function note(outcome, whom)
  trail(now, ARGV[11], ARGV[12],
    {'kind', 'pairing', 'outcome', outcome, 'actor', ARGV[2], 'channel', ARGV[4], 'about', whom})
end

local packed = redis.call('HGET', KEYS[1], ARGV[1])
local one = packed and cmsgpack.unpack(packed)
if one and one.request == ARGV[3] then return {0, packed} end

redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', integer(now - tonumber(ARGV[6])))
if redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[5]) then
  local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2]
  note('too_many_guesses', '')
  return {-1, tonumber(first) + tonumber(ARGV[6]) - now}
end
if not one or (ARGV[4] ~= '' and one.channel ~= ARGV[4]) then
  redis.call('ZADD', KEYS[2], integer(now), ARGV[3])
  redis.call('PEXPIRE', KEYS[2], ARGV[6])
  note('wrong_code', '')
  return {-2, tonumber(ARGV[5]) - redis.call('ZCARD', KEYS[2])}
end

local whom = one.channel .. ':' .. one.sender
local refused = one.request ~= '' and -3 or one.expires_at <= now and -4
  or redis.call('HLEN', key('pair', one.channel)) >= tonumber(ARGV[7]) and -5
if refused then
  note(({[-3] = 'used_code', [-4] = 'late_code', [-5] = 'full'})[refused], whom)
  return {refused}
end

one.by, one.at, one.request = ARGV[2], now, ARGV[3]
packed = cmsgpack.pack(one)
redis.call('HSET', key('pair', one.channel), one.sender, packed)
redis.call('SADD', 'shoal:pair', one.channel)
redis.call('HSET', KEYS[1], ARGV[1], packed)  -- it stays until its end, so that a second use is known as one
local session = key('session', one.session)
add_line(session, key('outbox', one.session), key('live', one.session), ARGV[8], ARGV[10])
if redis.call('PTTL', session) < tonumber(ARGV[9]) then redis.call('PEXPIRE', session, ARGV[9]) end
note('let_in', whom)
return {1, packed}
