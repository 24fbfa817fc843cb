-- Ids of messages that came before.
--
-- Ids of messages that came are kept in one hash a day, so that forgetting is cheap: a whole hash
-- expires. A hash of millions would hold the server up when it goes, so one that is full stays as
-- it
-- is, and each further id goes to one of 256 parts by its SHA-1: `<prefix><day>:3f`, then
-- `<prefix><day>:3f0a`. Field SPLIT of a hash is no id, which has a '/'. It says '+' once there are
-- parts, '1' where there may be, and '0' where not: releases before this one know only the day's
-- own
-- hash, so parts begin on the second day after an update, when none of them runs any more.
local SEEN_CAP, SPLIT = 50000, ':split'
-- Returns the name of a day's hash, or of the part for ids with this SHA-1 at a depth.
local function seen_hash(prefix, day, digest, depth)
  return prefix .. day .. (depth > 0 and ':' .. string.sub(digest, 1, 2 * depth) or '')
end

-- Returns what was stored for a message id, on this day or one of the `days` before; nil if
-- unknown.
local function seen_before(prefix, days, id, now)
  local today, digest = math.floor(now / 86400000), nil
  -- Newest day first: nearly every repeated delivery comes within seconds.
  for day = today, today - days, -1 do
    local depth, found = 0, nil
    repeat
      found = redis.call('HMGET', seen_hash(prefix, day, digest, depth), id, SPLIT)
      if found[1] then return found[1] end
      depth, digest = depth + 1, digest or found[2] == '+' and redis.sha1hex(id)
    until found[2] ~= '+'
  end
end

-- Stores the answer to a message id for the following days.
local function remember_seen(prefix, days, id, now, answer)
  local today, digest, depth = math.floor(now / 86400000), nil, 0
  while true do
    local hash = seen_hash(prefix, today, digest, depth)
    local size = redis.call('HLEN', hash)
    if size == 0 then
      -- The first id of the day, or of a part. A part is this release's own. A day's hash may be
      -- split if the one before was begun by this release, too, or if there is none.
      local before = depth == 0 and prefix .. (today - 1)
      local may = not before or redis.call('EXISTS', before) == 0 or redis.call('HGET', before, SPLIT)
      redis.call('HSET', hash, SPLIT, may and '1' or '0')
      redis.call('EXPIRE', hash, (days + 1) * 86400)
    end
    local split = size >= SEEN_CAP and redis.call('HMGET', hash, SPLIT, id)
    -- Room, not to be split, or the id is in it: an answer may change.
    if not split or split[2] or (split[1] ~= '1' and split[1] ~= '+') then
      redis.call('HSET', hash, id, answer)
      return
    end
    redis.call('HSET', hash, SPLIT, '+')
    depth, digest = depth + 1, digest or redis.sha1hex(id)
  end
end

-- Stored responses: each is a record that names its session and its principal, and two lists name
-- it. All commands are guarded: an older list of Redis users does not allow these keys, and a
-- broken one must not keep a session from being erased.
--
-- Deletes a response and its names. Returns its session, nil if it was gone.
local function drop_response(id)
  local record = key('response', id)
  local session, by, n = unpack(guarded('HMGET', record, 'session', 'by', 'n') or {})
  guarded('DEL', record)
  if by then guarded('ZREM', key('kept', by), id) end
  if session then guarded('ZREM', key('responses', session), id) end
  -- The place of its turn, unless a later response of the same turn has it by now.
  local places, place = by and key('unfinished', by), n and session and n .. ' ' .. session
  if places and place and string.match(guarded('HGET', places, place) or '', '^%S+') == id then
    guarded('HDEL', places, place)
  end
  return session or nil
end

-- Deletes all responses of a session. Returns how many there were.
local function drop_responses(session)
  local ids = guarded('ZRANGE', key('responses', session), 0, -1) or {}
  for _, id in ipairs(ids) do
    drop_response(id)
  end
  return #ids
end

-- Places of responses in the background that are not finished: a hash of their principal,
-- `<turn> <session>` -> `<id of the response> <ms>`. Nothing frees a place when a turn ends: commit
-- and all others that end turns know of no principals. Whoever needs a place looks which are free.
--
-- Tells whether a turn still works for a response.
local function is_unfinished(place, value, now)
  local n, session = string.match(place, '^(%d+) (.*)$')
  local id, at = string.match(value, '^(%S+) (%d+)$')
  -- Answered, stopped, withdrawn or erased: its message is in no inbox any more.
  if not id or #(guarded('XRANGE', key('inbox', session), n .. '-0', n .. '-0') or {}) == 0 then return false end
  -- It ended with calls of functions, and the turn waits for their results (see park.lua).
  local asked = guarded('HGET', key('session', session), 'asked') or ''
  if string.match(asked, '^calls %x+ %d+ %d+ (%d+) ') == n then return false end
  -- Expired. The record follows the message, within the time that a request may take.
  return now - tonumber(at) < 600000 or guarded('EXISTS', key('response', id)) == 1
end

-- Tells whether a principal may have one more response in the background (`most` 0 = no limit).
local function has_place(places, most, now)
  if most == 0 or (guarded('HLEN', places) or 0) < most then return true end
  local all, held = guarded('HGETALL', places) or {}, 0
  for i = 1, #all, 2 do
    if is_unfinished(all[i], all[i + 1], now) then
      held = held + 1
    else
      redis.call('HDEL', places, all[i])
    end
  end
  return held < most
end

-- Gives the place of a turn to a response. One before it in the same turn ended with calls.
local function take_place(places, n, session, id, now, keep_ms)
  guarded('HSET', places, n .. ' ' .. session, id .. ' ' .. integer(now))
  guarded('PEXPIRE', places, keep_ms)
end
