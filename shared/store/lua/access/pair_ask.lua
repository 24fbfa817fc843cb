#!lua
-- durable
-- Tells a person who is not allowed to talk to the bot so, at most once in a while, with a pairing
-- code if one is given.
-- stranger_brake     what this person was told
-- strangers_brake    what strangers were told in this channel
-- digest             hash of the code ('' = none is given)
-- record             of who asks
-- line               with the code
-- code_ms            how long a code is good
-- most_codes         open ones of a channel at once; most_codes_in_all: of all
-- most_notices       how often a person is told within notices_ms
-- most_strangers     how many strangers of a channel are told in a minute
-- keep_...           the session, if nobody keeps it longer, and its log
-- audit_...          how much of the audit record is kept, and a MessagePack list of names and
--                    values
-- returns {'told' | 'told_before', or too often | 'let_in' | 'too_many' strangers, ms for which no
--         more is said}
local PAIRING, pair, stranger_brake, strangers_brake, session, outbox, live = unpack(KEYS)
local channel, sender, digest, record, line, code_ms, most_codes, most_codes_in_all, most_notices,
  notices_ms, most_strangers, keep_session_ms, keep_log_ms, audit_lines, audit_ms, audit_fields = unpack(ARGV)
local now = now_ms()
-- Let in meanwhile, perhaps through another gateway.
if digest ~= '' and redis.call('HEXISTS', pair, sender) == 1 then return {'let_in', 0} end
-- Counts open codes, and finds the one that this person may have already. There are never more of
-- them than codes allowed in all.
local every, here = 0, 0
for _, digest in ipairs(redis.call('HKEYS', PAIRING)) do
  local one = cmsgpack.unpack(redis.call('HGET', PAIRING, digest))
  -- Fields of a hash have no expiry of their own.
  if one.expires_at <= now then
    redis.call('HDEL', PAIRING, digest)
  else
    local asks = one.request == '' and one.sender == sender
    -- One open code for each person; they were told it.
    if asks and one.channel == channel then return {'told_before', one.expires_at - now} end
    every = every + 1
    if one.channel == channel then here = here + 1 end
  end
end
-- Three limits, cheapest first: this person, this channel's strangers, open codes.
local notices = tonumber(redis.call('GET', stranger_brake) or 0)
if notices >= tonumber(most_notices) then return {'told_before', redis.call('PTTL', stranger_brake)} end
if tonumber(redis.call('GET', strangers_brake) or 0) >= tonumber(most_strangers) then return {'too_many', redis.call('PTTL', strangers_brake)} end
-- Nothing is stored for whoever comes beyond the limits.
if digest ~= '' and (here >= tonumber(most_codes) or every >= tonumber(most_codes_in_all)) then return {'too_many', 60000} end
if digest ~= '' then
  -- The expiry counts by the server's clock.
  local one = cmsgpack.unpack(record)
  one.expires_at = now + tonumber(code_ms)
  redis.call('HSET', PAIRING, digest, cmsgpack.pack(one))
  redis.call('PEXPIRE', PAIRING, code_ms)
end
-- The expiry is set with the first notice of its window.
for brake, ms in pairs({[stranger_brake] = notices_ms, [strangers_brake] = 60000}) do
  if redis.call('INCR', brake) == 1 then redis.call('PEXPIRE', brake, ms) end
end
-- The person wrote there, so the platform takes messages again.
reopen_chat(key_id(outbox))  -- somebody wrote there
add_line(session, outbox, live, line, keep_log_ms)
-- Never shortens the life of a chat whose person was let in before.
if redis.call('PTTL', session) < tonumber(keep_session_ms) then redis.call('PEXPIRE', session, keep_session_ms) end
audit_line(now, audit_lines, audit_ms, cmsgpack.unpack(audit_fields))
return {'told', digest ~= '' and tonumber(code_ms) or tonumber(notices_ms)}
