#!lua flags=allow-oom
-- durable
-- Submits the results of the functions that a parked turn waits for, past its inbox and all at once;
-- the turn is due at once.
-- outputs      MessagePack list of call ids and results in turn
-- source       with which they mark the turn
-- seen         prefix of the hashes of seen ids; they are remembered for this many days
-- places       of responses in the background ('' = the program has none), see has_place
-- background   '1' = the response that goes on with the turn is in the background
-- most_places  that its principal may have (0 = no limit)
-- response     its id
-- returns {'done' | 'known' = this request did it before | 'unknown' call | 'missing' | 'used' = they
--         were submitted by another request | 'late' | 'over' = the turn has ended | 'held' = a worker
--         holds it at this moment | 'crowded' = no place is free | 'full' = its ledger is,
--         number of the turn, ids of calls for 'unknown' and 'missing'}
local queue, leases, wake_list, session, ledger, places = unpack(KEYS)
local name, member, outputs, source, dedupe_id, seen, days, cap_bytes, background, most_places, response,
  keep_session_ms = unpack(ARGV)
days = tonumber(days)
local now = now_ms()
local first = seen_before(seen, days, dedupe_id, now)
if first then return {'known', tonumber(string.match(first, '^%d+')), ''} end
-- Field `asked`: see park.lua.
local fields = redis.call('HMGET', session, 'asked', 'stop', 'cut')
local state, expires, step, n, ids = string.match(fields[1] or '', '^(%a+) %x+ (%d+) (%d+) (%d+) %S+ (.*)$')
local waits = {}
if state == 'calls' or state == 'done' then
  for id in string.gmatch(ids, '%S+') do waits[id] = true end
end
outputs = cmsgpack.unpack(outputs)
local results = {}
for i = 1, #outputs, 2 do
  if not waits[outputs[i]] then return {'unknown', 0, outputs[i]} end
  results[outputs[i]] = outputs[i + 1]
end
-- A part of the results would leave the turn waiting for ever.
local missing = {}
for id in string.gmatch(ids or '', '%S+') do
  if waits[id] and not results[id] then missing[#missing + 1] = id end
end
if #missing > 0 or #outputs == 0 then return {'missing', tonumber(n or 0), table.concat(missing, ' ')} end
if state ~= 'calls' then return {'used', tonumber(n), ''} end
if now >= tonumber(expires) then return {'late', tonumber(n), ''} end
-- The turn must still wait at this step: one that was stopped, or cut by a newer message, is over.
local last = redis.call('XREVRANGE', ledger, '+', '-', 'COUNT', 1)[1]
if fields[2] == n or (parse_count(fields[3]) or 0) > tonumber(n) or not last or last[1] ~= step .. '-0' then
  return {'over', tonumber(n), ''}
end
local question = cmsgpack.unpack(field(last, 'm'))
if question.t ~= 'calls' then return {'over', tonumber(n), ''} end
-- A lease means that a worker reads the ledger now: appending to it would open a hole.
if redis.call('HGET', leases, member) then return {'held', tonumber(n), ''} end
if background == '1' and places ~= NO_KEY and not has_place(places, tonumber(most_places), now) then
  return {'crowded', tonumber(n), ''}
end
check_fleet('zset', queue)
local records, size = {}, 0
for i, call in ipairs(question.calls) do
  -- The same shape as `ToolEntry` in shared/messages/transcript.py.
  records[i] = cmsgpack.pack({
    t = 'tool', call_id = call.id, name = call.name, content = results[call.id], turn = tonumber(n), at = now,
    sources = {source}, client = true,
  })
  size = size + #records[i]
end
-- As in ledger.lua: booked first, undone if the cap is reached.
if count_up(session, 'ledger', size) > tonumber(cap_bytes) then
  redis.call('HINCRBY', session, 'ledger', -size)
  return {'full', tonumber(n), ''}
end
for i, record in ipairs(records) do
  redis.call('XADD', ledger, integer(tonumber(step) + i) .. '-0', 'm', record)
end
-- The response before this one has ended, whether or not this one is in the background, too.
if places ~= NO_KEY then
  if background == '1' then
    take_place(places, n, name, response, now, keep_session_ms)
  else
    guarded('HDEL', places, n .. ' ' .. name)
  end
end
redis.call('HSET', session, 'asked', 'done' .. string.sub(fields[1], #state + 1))
remember_seen(seen, days, dedupe_id, now, n .. ':0')
resume_parked(session, queue, wake_list, member, now)
return {'done', tonumber(n), ''}
