-- In front of scripts that leave a line in the audit record: so many lines stay, and for so long. It is not among their
-- KEYS: gateways and workers may write it and not read it.
local function trail(now, lines, keep_ms, fields)
  redis.call('XADD', 'shoal:audit', '*', unpack(fields))
  redis.call('XTRIM', 'shoal:audit', 'MAXLEN', lines)
  redis.call('XTRIM', 'shoal:audit', 'MINID', integer(now - tonumber(keep_ms)))
  redis.call('PEXPIRE', 'shoal:audit', keep_ms)
end
