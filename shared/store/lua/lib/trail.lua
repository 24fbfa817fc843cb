-- Sent in front of scripts that write to the audit record. It keeps `lines` lines of `keep_ms`.
-- The stream is not among their KEYS: gateways and workers may write it but not read it.
local function audit_line(now, lines, keep_ms, fields)
  redis.call('XADD', 'shoal:audit', '*', unpack(fields))
  -- By number and by age; an entry's id is its time.
  redis.call('XTRIM', 'shoal:audit', 'MAXLEN', lines)
  redis.call('XTRIM', 'shoal:audit', 'MINID', integer(now - tonumber(keep_ms)))
  redis.call('PEXPIRE', 'shoal:audit', keep_ms)
end
