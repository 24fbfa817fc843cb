-- Sent in front of scripts that write to the audit record. It keeps about `lines` lines of
-- `keep_ms`.
-- The stream is not among their KEYS: gateways and workers may add to it, and neither read nor
-- delete it. So XADD has to trim, too. It can by number or by age (an entry's id is its time): one
-- line in eight trims by age. Readers leave out what is over either limit until then.
local function audit_line(now, lines, keep_ms, fields)
  if now % 8 == 0 then
    redis.call('XADD', PREFIX .. 'audit', 'MINID', integer(now - tonumber(keep_ms)), '*', unpack(fields))
  else
    redis.call('XADD', PREFIX .. 'audit', 'MAXLEN', lines, '*', unpack(fields))
  end
end
