#!lua
-- Adds a schedule to a chat, once; for a turn only while it holds its lease.
-- KEYS   1 due times  2 the chat's schedules  3 leases
-- ARGV   1 id  2 session  3 member  4 lease ('' = no turn wants this)  5 record  6 first tick
--        7 cap of the chat  8 cap of all  9 prefix of the seen hashes  10 days an id is remembered
--        11 dedupe id ('' = one that is over may be made again)
-- returns {1 made | 0 there already | 2 made before, and over | -1 the lease is lost | -2 the chat has enough
--         | -3 there are too many in all, its record, its next tick}
local due, all, id = KEYS[1], KEYS[2], ARGV[1]
-- A turn plans only while it holds its lease; an operator needs none.
if ARGV[4] ~= '' and not holds_lease(KEYS[3], ARGV[3], ARGV[4]) then return {-1} end
local record, tick = unpack(redis.call('HMGET', all, id, id .. ':tick'))
-- The same call again finds what it made.
if record then return {0, record, tick} end
local now = now_ms()
-- Made before by this call, and over by now: a repeated attempt of a turn must not revive it.
if ARGV[11] ~= '' and seen_before(ARGV[9], tonumber(ARGV[10]), ARGV[11], now) then return {2} end
-- Fields with a colon describe a schedule; the others are schedules.
local count = 0
for _, one in ipairs(redis.call('HKEYS', all)) do
  if not string.find(one, ':') then count = count + 1 end
end
if count >= tonumber(ARGV[7]) then return {-2} end
if redis.call('ZCARD', due) >= tonumber(ARGV[8]) then return {-3} end
-- The record and its next tick belong together: `schedules/due` drops an entry that lacks one.
redis.call('HSET', all, id, ARGV[5], id .. ':tick', ARGV[6])
-- In a chat whose schedules are paused it pauses with the others.
redis.call('ZADD', due, redis.call('HGET', all, ':paused') or ARGV[6], id .. ':' .. ARGV[2])
if ARGV[11] ~= '' then
  remember_seen(ARGV[9], tonumber(ARGV[10]), ARGV[11], now, '0:0')
end
return {1, ARGV[5], ARGV[6]}
