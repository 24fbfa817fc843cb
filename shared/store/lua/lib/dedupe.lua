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
  local known = guarded('HMGET', record, 'session', 'by') or {}
  guarded('DEL', record)
  if known[2] then guarded('ZREM', key('kept', known[2]), id) end
  if known[1] then guarded('ZREM', key('responses', known[1]), id) end
  return known[1] or nil
end

-- Deletes all responses of a session. Returns how many there were.
local function drop_responses(session)
  local ids = guarded('ZRANGE', key('responses', session), 0, -1) or {}
  for _, id in ipairs(ids) do
    drop_response(id)
  end
  return #ids
end
