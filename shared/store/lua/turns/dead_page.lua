#!lua flags=no-writes,allow-oom
-- A page of dead letters without their records, which may be large.
-- KEYS   1 dead letters
-- ARGV   1 'XRANGE' = oldest first, 'XREVRANGE' = newest first  2 from  3 to  4 how many
-- returns a list of {id, member, n, reason, bytes of the record, why, how often it may have been delivered}
local page = {}
for i, letter in ipairs(redis.call(ARGV[1], KEYS[1], ARGV[2], ARGV[3], 'COUNT', ARGV[4])) do
  local found, fields = {}, letter[2]
  -- Fields differ between letters of turns and of lines.
  for at = 1, #fields, 2 do
    found[fields[at]] = fields[at + 1]
  end
  -- Only the size of the record travels; a page of large records could be hundreds of megabytes.
  page[i] = {letter[1], found.member or '', found.n or '0', found.reason or '', #(found.m or ''),
    found.why or '', found.unsure or '0'}
end
return page
