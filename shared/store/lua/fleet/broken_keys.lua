#!lua flags=no-writes,allow-oom
-- Finds keys that are of another type than they should be. One that the caller may not see is left
-- out: another role sees it.
-- wanted  MessagePack list of the name of a key, its type, the next one's name and so on
-- returns the names of the broken ones
local wanted = unpack(ARGV)
wanted = cmsgpack.unpack(wanted)
local broken = {}
for i = 1, #wanted, 2 do
  local found = guarded('TYPE', wanted[i])
  if found and found.ok ~= wanted[i + 1] and found.ok ~= 'none' then
    broken[#broken + 1] = wanted[i]
  end
end
return broken
