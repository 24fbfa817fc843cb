#!lua flags=allow-oom
-- with trail
-- Leave a line in the audit record.
-- ARGV   1 lines kept  2 ms kept  3... names and values
-- returns 1
audit_line(now_ms(), ARGV[1], ARGV[2], {unpack(ARGV, 3)})
return 1
