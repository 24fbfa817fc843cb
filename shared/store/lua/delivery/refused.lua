#!lua flags=allow-oom
-- with delivery
-- Gives the first line up: it becomes a dead letter. If the chat is closed, so do all lines that
-- waited when the post was tried, and its schedules are paused. Renews the lease.
-- KEYS   1 outqueue  2 outleases  3 state  4 outbox  5 outwaits
-- ARGV   1 session  2 lease  3 lease ms  4 line  5 reason  6 why, in words for operators  7 '1' = the chat is closed
--        8 lines at most  9 ms after which schedules that still rest are over  10 keep the state ms
-- returns how many lines, 0 it was ended before, -1 the lease is lost
local name, state, box = ARGV[1], KEYS[3], KEYS[4]
if not holds_lease(KEYS[2], name, ARGV[2]) then return -1 end
-- The post that was refused is the next one that the platform does not have.
local done = posts_done(state, ARGV[4])
local at = post_position(state, box, ARGV[4], done)
-- The server lost writes: another gateway begins with what it has now.
if at > 0 then
  release_chat(KEYS[1], KEYS[2], name, 0)
  return -1
end
-- Every report is a renewal, too.
keep_lease(KEYS[1], name, ARGV[3])
if at < 0 then return 0 end
local mark, newest = sending_mark(state, ARGV[4], done)
-- A closed chat gives up every line that waited when the post was tried; newer ones may be a person
-- who opened the chat again.
local through = ARGV[4]
if ARGV[7] == '1' and mark == ARGV[2] then
  through = newest
end
-- A mark of another lease: that post may have arrived.
local unsure = tonumber(redis.call('HGET', state, 'unsure') or 0)
if mark and mark ~= ARGV[2] then
  unsure = unsure + 1
end
local ids, entries = {}, redis.call('XRANGE', box, '-', through .. '-0', 'COUNT', ARGV[8])
-- First the letters, then the lines: nothing is lost between them, because a script is atomic.
dead_letter_lines(name, entries, ARGV[5], ARGV[6], integer(unsure))
for i, entry in ipairs(entries) do
  ids[i] = entry[1]
end
remove_lines(name, state, box, KEYS[5], ids)
-- Nothing may be sent there any more, so scheduled work is pointless, too.
if ARGV[7] == '1' then
  redis.call('HSET', state, 'closed', integer(now_ms()))
  redis.call('PEXPIRE', state, ARGV[10])
  pause_schedules(name, ARGV[9])
end
return #ids
