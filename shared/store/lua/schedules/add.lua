#!lua
-- durable
-- Adds a schedule to a chat, once; for a turn only while it holds its lease.
-- name         the session
-- lease        '' = no turn wants this
-- tick         the first one
-- most_here    schedules of the chat; most_in_all: of all
-- seen         prefix of the hashes of seen ids; they are remembered for this many days
-- dedupe_id    '' = one that is over may be made again
-- returns {'made' | 'there' = already, its record, its next tick} | {'over' = made before} |
--         {'lost'}
--         | {'chat_full'} | {'all_full'}
local SCHEDULES, schedules, leases = unpack(KEYS)
local id, name, member, lease, record, tick, most_here, most_in_all, seen, days, dedupe_id = unpack(ARGV)
-- A turn plans only while it holds its lease; an operator needs none.
if lease ~= '' and not holds_lease(leases, member, lease) then return {'lost'} end
local has, its_tick = unpack(redis.call('HMGET', schedules, id, id .. ':tick'))
-- The same call again finds what it made.
if has then return {'there', has, its_tick} end
local now = now_ms()
-- Made before by this call, and over by now: a repeated attempt of a turn must not revive it.
if dedupe_id ~= '' and seen_before(seen, tonumber(days), dedupe_id, now) then return {'over'} end
-- Fields with a colon describe a schedule; the others are schedules.
local count = 0
for _, one in ipairs(redis.call('HKEYS', schedules)) do
  if not string.find(one, ':') then count = count + 1 end
end
if count >= tonumber(most_here) then return {'chat_full'} end
if redis.call('ZCARD', SCHEDULES) >= tonumber(most_in_all) then return {'all_full'} end
-- The record and its next tick belong together: `schedules/due` drops an entry that lacks one.
redis.call('HSET', schedules, id, record, id .. ':tick', tick)
-- In a chat whose schedules are paused it pauses with the others.
redis.call('ZADD', SCHEDULES, redis.call('HGET', schedules, ':paused') or tick, id .. ':' .. name)
if dedupe_id ~= '' then
  remember_seen(seen, tonumber(days), dedupe_id, now, '0:0')
end
return {'made', record, tick}
