#!lua flags=allow-oom
-- durable
-- Removes one entry from a conversation, between two turns.
-- record  the entry
-- returns 'done' | 'running' = a message waits or is being answered | 'gone' = it is not, or no longer,
--         in the conversation
local session, inbox, history, archive = unpack(KEYS)
local record = unpack(ARGV)
if redis.call('XLEN', inbox) > 0 then return 'running' end
check_chat('list', history, archive)
check_chat('hash', session)
-- Each list, with the fields of its mark and its bytes.
for _, part in ipairs({{history, 'mark', 'history'}, {archive, 'archive_mark', 'archive'}}) do
  local list, mark, bytes = unpack(part)
  if redis.call('LREM', list, 1, record) == 1 then
    -- A consolidation that read this list finds another mark and begins again: the entries that it
    -- counted are not at the head any more.
    count_up(session, mark, 1)
    if redis.call('EXISTS', list) == 0 then
      redis.call('HDEL', session, bytes)
    elseif count_up(session, bytes, -#record) < 0 then
      -- The count was no number, or not that of these entries: it begins again.
      redis.call('HSET', session, bytes, 0)
    end
    return 'done'
  end
end
return 'gone'
