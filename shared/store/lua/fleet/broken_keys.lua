#!lua flags=no-writes,allow-oom
-- Finds keys that are of another type than they should be. One that the caller may not see is left
-- out: another role sees it.
-- ARGV   for each key its name and its type
-- returns the names of the broken ones
local broken = {}
for i = 1, #ARGV, 2 do
  local found = guarded('TYPE', ARGV[i])
  if found and found.ok ~= ARGV[i + 1] and found.ok ~= 'none' then
    broken[#broken + 1] = ARGV[i]
  end
end
return broken
