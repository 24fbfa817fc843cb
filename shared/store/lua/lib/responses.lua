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
