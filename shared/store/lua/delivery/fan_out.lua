#!lua flags=allow-oom
-- durable
-- Makes lines for endpoints of webhooks of notices, and drops the notices: each once, whoever else does
-- the same at this moment. Lines of an endpoint come in the order of the notices.
-- notices  MessagePack list: of each its id, then session and line of each endpoint that it goes to
-- returns lines added, and lines left out because their endpoint is closed or its keys are broken
local NOTICES = unpack(KEYS)
local notices, keep_line_ms, keep_session_ms = unpack(ARGV)
local added, closed, broken = 0, 0, 0
check_fleet('stream', NOTICES)
for _, notice in ipairs(cmsgpack.unpack(notices)) do
  local id = notice[1]
  -- Another gateway may have had it in hand, too.
  if #redis.call('XRANGE', NOTICES, id, id) == 1 then
    for i = 2, #notice, 2 do
      local name = notice[i]
      local session = key('session', name)
      -- It said that nothing is to be sent there any more.
      if guarded('HEXISTS', key('out', name), 'closed') == 1 then
        closed = closed + 1
      -- A broken endpoint must not stop the others.
      elseif pcall(add_line, session, key('outbox', name), key('live', name), notice[i + 1], keep_line_ms) then
        guarded('PEXPIRE', session, keep_session_ms)
        added = added + 1
      else
        broken = broken + 1
      end
    end
    -- In the same step, so that none is lost and none comes twice.
    redis.call('XDEL', NOTICES, id)
  end
end
return {added, closed, broken}
