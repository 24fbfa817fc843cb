#!lua flags=allow-oom
-- durable
-- Gives the first line up: it becomes a dead letter. If the chat is closed, so do all lines that
-- waited when the post was tried, and its schedules are paused. Renews the lease.
-- line        number of the first line
-- why         the reason in words, for operators
-- closed      '1' = the chat is closed
-- most_lines  lines at most
-- rest_ms     time after which schedules that still rest are over
-- returns how many lines, 0 it was ended before, 'lost'
local outqueue, outleases, state, outbox, outwaits = unpack(KEYS)
local name, lease, lease_ms, line, reason, why, closed, most_lines, rest_ms, keep_ms = unpack(ARGV)
if not holds_lease(outleases, name, lease) then return 'lost' end
-- The post that was refused is the next one that the platform does not have.
local done = posts_done(state, line)
local at = post_position(state, outbox, line, done)
-- The server lost writes: another gateway begins with what it has now.
if at > 0 then
  release_chat(outqueue, outleases, name, 0)
  return 'lost'
end
-- Every report is a renewal, too.
keep_lease(outqueue, name, lease_ms)
if at < 0 then return 0 end
local mark, newest = sending_mark(state, line, done)
-- A closed chat gives up every line that waited when the post was tried; newer ones may be a person
-- who opened the chat again.
local through = line
if closed == '1' and mark == lease then
  through = newest
end
-- A mark of another lease: that post may have arrived.
local unsure = tonumber(redis.call('HGET', state, 'unsure') or 0)
if mark and mark ~= lease then
  unsure = unsure + 1
end
local ids, entries = {}, redis.call('XRANGE', outbox, '-', through .. '-0', 'COUNT', most_lines)
-- First the letters, then the lines: nothing is lost between them, because a script is atomic.
dead_letter_lines(name, entries, reason, why, integer(unsure))
for i, entry in ipairs(entries) do
  ids[i] = entry[1]
end
remove_lines(name, state, outbox, outwaits, ids)
-- Nothing may be sent there any more, so scheduled work is pointless, too.
if closed == '1' then
  redis.call('HSET', state, 'closed', integer(now_ms()))
  redis.call('PEXPIRE', state, keep_ms)
  pause_schedules(name, rest_ms)
end
return #ids
