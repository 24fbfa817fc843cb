#!lua flags=no-writes,allow-oom
-- A page of dead letters without their records, which may be large.
-- command  'XRANGE' = oldest first, 'XREVRANGE' = newest first
-- returns a list of {id, member, n, reason, bytes of the record, why, how often it may have been
--         delivered}
local DEAD = unpack(KEYS)
local command, first, last, most = unpack(ARGV)
local page = {}
for i, letter in ipairs(redis.call(command, DEAD, first, last, 'COUNT', most)) do
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
