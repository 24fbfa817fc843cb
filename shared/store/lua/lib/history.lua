-- Conversations, and what is remembered of them.
--
-- Drops the oldest entries of a session's archive of `size` bytes, which has not been consolidated
-- for
-- long, while it is over `cap` bytes. Returns how many.
local function trim_archive(session, archive, cap, size)
  local dropped = 0
  while size > cap and (guarded('LLEN', archive) or 0) > 1 do
    size = redis.call('HINCRBY', session, 'archive', -#redis.call('LPOP', archive))
    dropped = dropped + 1
  end
  if dropped > 0 then
    count_up(session, 'archive_mark', dropped)
  end
  return dropped
end

-- Appends records to a conversation of `size` bytes. While it is over `cap` bytes its oldest
-- entries
-- move to the archive, and are consolidated from there. Returns the entries it has now, those
-- dropped
-- because the archive is full, too, and its new size, which the caller stores.
local function add_history(session, history, records, cap, size)
  local length, left = 0, 0
  -- Lua's stack limits how many values `unpack` may return at once.
  for from = 1, #records, 1000 do
    length = redis.call('RPUSH', history, unpack(records, from, math.min(#records, from + 999)))
  end
  -- The size of a conversation is the sum of its records, kept by the caller next to it. It begins
  -- again with the conversation, which may have been lost.
  if length == #records then
    size = 0
  end
  for _, record in ipairs(records) do
    size = size + #record
  end
  if size <= cap or length == 1 then return length, 0, size end
  local name = key_id(history)
  local archive, moved = key('archive', name), 0
  -- One entry always stays, however large it is.
  while size > cap and length > 1 do
    local entry = redis.call('LPOP', history)
    -- Guarded: a broken archive must not end a commit between two of its writes.
    moved = moved + (guarded('RPUSH', archive, entry) and #entry or 0)
    length, left, size = length - 1, left + 1, size - #entry
  end
  -- `mark` counts the entries that ever left at the head: a consolidation that read these entries
  -- finds another mark and leaves the rest alone.
  count_up(session, 'mark', left)
  guarded('PEXPIRE', archive, 365 * 86400000)
  -- The sweep finds the session, and queues the job that consolidates the archive.
  guarded('ZADD', PREFIX .. 'idle', integer(now_ms()), name)
  -- Four full conversations fit, as `/new` has it.
  return length, trim_archive(session, archive, 4 * cap, count_up(session, 'archive', moved)), size
end

-- Appends pages to the transcript of a session, and drops its oldest ones: those that are over
-- `cap`
-- bytes in all, and those that came more than `keep_ms` ago.
local function add_pages(session, transcript, pages, cap, keep_ms)
  local added = 0
  for _, page in ipairs(pages) do
    redis.call('XADD', transcript, '*', 'z', page)
    added = added + #page
  end
  -- Field `transcript` of the session counts the bytes. It begins again with the stream, which expires.
  local length, size = redis.call('XLEN', transcript), added
  if length > #pages then
    size = count_up(session, 'transcript', added)
  end
  local oldest_ms = now_ms() - keep_ms
  -- The newest page always stays.
  for left = length, 2, -1 do
    local oldest = redis.call('XRANGE', transcript, '-', '+', 'COUNT', 1)[1]
    -- An id is the time at which its page came.
    if size <= cap and tonumber(string.match(oldest[1], '^%d+')) >= oldest_ms then break end
    redis.call('XDEL', transcript, oldest[1])
    size = size - #(field(oldest, 'z') or '')
  end
  redis.call('HSET', session, 'transcript', integer(size))
  redis.call('PEXPIRE', transcript, integer(keep_ms))
end

-- Returns the fields `old:<version>` of a memory, oldest first: the texts that it had before.
local function old_texts(memory)
  local found = {}
  for _, name in ipairs(redis.call('HKEYS', memory)) do
    if string.sub(name, 1, 4) == 'old:' then found[#found + 1] = name end
  end
  table.sort(found)
  return found
end

-- Stores a new text of a MEMORY.md and returns its version. A version is a time, so that the memory
-- of a scope that was forgotten and begun again never reuses an old version. The last 10 texts
-- stay,
-- for people who want one back.
local function set_memory(memory, text)
  local before, at, marks = unpack(redis.call('HMGET', memory, 'text', 'v', 'sources'))
  local version = integer(math.max(now_us(), (tonumber(at) or 0) + 1))
  redis.call('HSET', memory, 'text', text, 'v', version)
  if before and before ~= '' and before ~= text then
    -- With its mark: `/trust` and a backup clear that of the text which is there, not of earlier ones.
    redis.call('HSET', memory, 'old:' .. at, before, 'mark:' .. at, marks or '')
    local old = old_texts(memory)
    for i = 1, #old - 10 do
      redis.call('HDEL', memory, old[i], 'mark:' .. string.sub(old[i], 5))
    end
  end
  return version
end
