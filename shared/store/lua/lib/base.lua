-- Functions that every script may use. Only those that a script names are sent with it.
-- All times are the server's own, so that the clocks of gateways and workers never matter.
-- This one counts in microseconds.
local function now_us()
  local t = redis.call('TIME')
  -- TIME answers seconds and the microseconds within that second, both as strings.
  return t[1] * 1000000 + t[2]
end

-- The same clock in milliseconds, the unit of every score and deadline.
local function now_ms()
  return math.floor(now_us() / 1000)
end

-- What every key begins with, as in `shared/store/keys.py`. A cluster keeps all names with the same
-- text in braces on one server.
local PREFIX = 'shoal:{0ax}:'

-- On a cluster, the key in KEYS before NO_KEY, after those of the caller.
local META = PREFIX .. 'meta'

-- Stands in KEYS for "no key": an empty name would be on another server of a cluster.
local NO_KEY = PREFIX .. 'none'

-- The name of a per-session key; `shared/store/keys.py` builds the same names.
local function key(kind, session)
  return PREFIX .. kind .. ':' .. session
end

-- Returns the id at the end of a name that `key` made.
local function key_id(name)
  return string.match(name, ':[^:]+:(.*)', #PREFIX)
end

-- Returns what a key is, without the id, for error texts.
local function key_family(name)
  return 'shoal:' .. string.match(name, '[^:]*', #PREFIX + 1)
end

-- Lua would print a large number as 1.79e+15, which Redis does not accept as a score or an id.
local function integer(number)
  return string.format('%d', number)
end

-- The fence: a caller may write only while the hash of leases names exactly its own acquisition.
-- An older acquisition by the same owner fails, too, because the token differs.
local function holds_lease(leases, member, lease)
  return redis.call('HGET', leases, member) == lease
end

-- Runs a command on a key that the caller can do without. Returns its reply, false for nil and when
-- the key is broken (of another type, say): a script has no rollback, so a broken key of the whole
-- fleet must not end it between two of its writes.
local function guarded(...)
  local reply = redis.pcall(...)
  return not (type(reply) == 'table' and reply.err) and reply
end

-- A command that fails for a key of another type; not TYPE, which older lists of users do not
-- allow.
local SIZE = {stream = 'XLEN', list = 'LLEN', hash = 'HLEN', zset = 'ZCARD'}
-- Raises an error, before the first write of a script, when one of these keys has another type. The
-- error names only the family of the key: it is logged, and the name of a chat is private. Clients
-- know by its first word whether a key of one chat is broken, or one of the whole fleet.
local function check_type(code, wanted, ...)
  for _, name in ipairs({...}) do
    if not guarded(SIZE[wanted], name) then
      error({err = code .. ' ' .. key_family(name) .. ' is no ' .. wanted})
    end
  end
end

-- Checks keys of one chat.
local function check_chat(wanted, ...)
  check_type('BROKEN', wanted, ...)
end

-- Checks keys of the whole fleet.
local function check_fleet(wanted, ...)
  check_type('WRONGTYPE', wanted, ...)
end

-- Parses a number that Shoal stored; nil when it is missing or anything else.
local function parse_count(text)
  local number = text and tonumber(string.match(text, '^%d+$'))
  -- Lua counts exactly up to here; tokens, in microseconds, are a fifth of it.
  return number and number < 2 ^ 53 and number or nil
end

-- Adds to a counter of a hash and returns its value. One that is no number begins again.
local function count_up(hash, name, by)
  local value = guarded('HINCRBY', hash, name, by)
  if not value then
    redis.call('HSET', hash, name, by)
  end
  return value or by
end

-- Returns the value of one field of a stream entry, nil when the entry lacks it.
local function field(entry, name)
  -- An entry is {id, {name, value, name, value, ...}}.
  for i = 1, #entry[2], 2 do
    if entry[2][i] == name then return entry[2][i + 1] end
  end
end

-- Adds to a mark: a field of a hash that holds labels of sources of strangers' text, a label a
-- line.
-- `labels` has the same form. A mark keeps its first 8 labels (`shared/messages/sources.py`).
local function add_sources(hash, name, labels)
  if labels == '' then return end
  local has, count = '\n' .. (redis.call('HGET', hash, name) or ''), 0
  for _ in string.gmatch(has, '[^\n]+') do count = count + 1 end
  for label in string.gmatch(labels, '[^\n]+') do
    -- Line ends on both sides, so that no label is found inside a longer one.
    if count < 8 and not string.find(has .. '\n', '\n' .. label .. '\n', 1, true) then
      has, count = has == '\n' and has .. label or has .. '\n' .. label, count + 1
    end
  end
  redis.call('HSET', hash, name, string.sub(has, 2))
end

-- Parses field `failed` of a route: the sessions whose calls failed since the last success, the last
-- one at the end, as `<session>:<faults>:<ms of the last one>`. What is older than the longest call
-- may take (hang_ms), and than a minute, is gone.
local function parse_failed(text, now, hang_ms)
  local failed, since = {}, now - math.max(tonumber(hang_ms), 60000)
  for session, faults, at in string.gmatch(text or '', '(%x+):(%d+):(%d+)') do
    if tonumber(at) > since then
      failed[#failed + 1] = {session = session, faults = tonumber(faults), at = at}
    end
  end
  return failed
end
