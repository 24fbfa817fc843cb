-- Albums: some platforms send each file of one message as a message of its own.
--
-- `shoal:album:<session>` says until when the turn of an album waits, in ms: `<album>`, for a part
-- of which nothing is known yet; `<album>\n<dedupe id>`, for one that a gateway is fetching.
local function album_part(album, dedupe_id)
  return album .. '\n' .. dedupe_id
end

-- Returns when the turn of an album may begin.
local function album_due(album_parts, album, now)
  local due, scores = now, guarded('ZRANGE', album_parts, 0, -1, 'WITHSCORES') or {}
  for i = 1, #scores, 2 do
    local one, ends = scores[i], tonumber(scores[i + 1])
    -- What lies further ahead than any part may take is from before the clock fell back.
    if (one == album or string.find(one, album .. '\n', 1, true) == 1) and ends < now + 60000 then
      due = math.max(due, ends)
    end
  end
  return due
end

-- Moves the turn at the head of a session to `due`, if it answers this album and has not begun.
local function move_album(queue, leases, inbox, session, member, album, due)
  local head = redis.call('XRANGE', inbox, '-', '+', 'COUNT', 1)[1]
  if head and field(head, 'g') == album and not redis.call('HGET', leases, member)
      and not redis.call('HGET', session, 'tries') then
    guarded('ZADD', queue, 'XX', integer(due), member)
  end
end

-- Returns whether another part of an album waits or is being answered.
local function album_waits(inbox, album)
  for _, entry in ipairs(redis.call('XRANGE', inbox, '-', '+')) do
    if field(entry, 'g') == album then return true end
  end
  return false
end
