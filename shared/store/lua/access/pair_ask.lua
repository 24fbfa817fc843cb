#!lua
-- with trail
-- Tells a person who is not allowed to talk to the bot so, at most once in a while, with a pairing
-- code if one is given.
-- KEYS   1 open codes  2 who is let in  3 brake: what this person was told  4 brake: what strangers were told here
--        5 session  6 log  7 live
-- ARGV   1 channel  2 sender  3 hash of the code ('' = none is given)  4 record of who asks  5 line with the code
--        6 how long a code is good ms  7 codes of a channel at once  8 codes in all
--        9 how often a person is told, within  10 ms  11 how many strangers of a channel are told in a minute
--        12 keep the session ms, if nobody keeps it longer  13 keep the log ms
--        14 lines of the audit record  15 ms of it  16... names and values of its line
-- returns {1 told | 0 told before, or too often | 2 is let in | -1 too many strangers, ms for which no more is said}
local channel, sender = ARGV[1], ARGV[2]
local now = now_ms()
-- Let in meanwhile, perhaps through another gateway.
if ARGV[3] ~= '' and redis.call('HEXISTS', KEYS[2], sender) == 1 then return {2, 0} end
-- Counts open codes, and finds the one that this person may have already. There are never more of
-- them than codes allowed in all.
local every, here = 0, 0
for _, digest in ipairs(redis.call('HKEYS', KEYS[1])) do
  local one = cmsgpack.unpack(redis.call('HGET', KEYS[1], digest))
  -- Fields of a hash have no expiry of their own.
  if one.expires_at <= now then
    redis.call('HDEL', KEYS[1], digest)
  else
    local asks = one.request == '' and one.sender == sender
    -- One open code for each person; they were told it.
    if asks and one.channel == channel then return {0, one.expires_at - now} end
    every = every + 1
    if one.channel == channel then here = here + 1 end
  end
end
-- Three limits, cheapest first: this person, this channel's strangers, open codes.
local notices = tonumber(redis.call('GET', KEYS[3]) or 0)
if notices >= tonumber(ARGV[9]) then return {0, redis.call('PTTL', KEYS[3])} end
if tonumber(redis.call('GET', KEYS[4]) or 0) >= tonumber(ARGV[11]) then return {-1, redis.call('PTTL', KEYS[4])} end
-- Nothing is stored for whoever comes beyond the limits.
if ARGV[3] ~= '' and (here >= tonumber(ARGV[7]) or every >= tonumber(ARGV[8])) then return {-1, 60000} end
if ARGV[3] ~= '' then
  -- The expiry counts by the server's clock.
  local one = cmsgpack.unpack(ARGV[4])
  one.expires_at = now + tonumber(ARGV[6])
  redis.call('HSET', KEYS[1], ARGV[3], cmsgpack.pack(one))
  redis.call('PEXPIRE', KEYS[1], ARGV[6])
end
-- The expiry is set with the first notice of its window.
for brake, ms in pairs({[KEYS[3]] = ARGV[10], [KEYS[4]] = 60000}) do
  if redis.call('INCR', brake) == 1 then redis.call('PEXPIRE', brake, ms) end
end
-- The person wrote there, so the platform takes messages again.
reopen_chat(string.sub(KEYS[6], 14))  -- somebody wrote there
add_line(KEYS[5], KEYS[6], KEYS[7], ARGV[5], ARGV[13])
-- Never shortens the life of a chat whose person was let in before.
if redis.call('PTTL', KEYS[5]) < tonumber(ARGV[12]) then redis.call('PEXPIRE', KEYS[5], ARGV[12]) end
audit_line(now, ARGV[14], ARGV[15], {unpack(ARGV, 16)})
return {1, ARGV[3] ~= '' and tonumber(ARGV[6]) or tonumber(ARGV[10])}
