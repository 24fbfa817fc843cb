#!lua flags=allow-oom
-- Leave a line in the audit record.
-- lines, keep_ms  how much of the record is kept
-- fields          MessagePack list of names and values
-- returns 1
local lines, keep_ms, fields = unpack(ARGV)
audit_line(now_ms(), lines, keep_ms, cmsgpack.unpack(fields))
return 1
