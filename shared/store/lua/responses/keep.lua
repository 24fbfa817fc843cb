#!lua
-- durable
-- Stores the record of a response, once. Its principal keeps the newest ones only.
-- response  its record
-- kept      the list of its principal
-- id        of the response, which is also its ticket
-- by        its principal
-- n, after  number of its message, and of the last line of its chat's log before that
-- shown     what it is shown with
-- input     what was asked
-- continues '1' = it goes on with a turn that waited for what it submitted
-- unnamed   '1' = its session is deleted with the newest response in it
-- most      responses that a principal keeps
-- returns 1 done, 0 its session is gone by now
local response, session, responses, kept, EPHEMERAL = unpack(KEYS)
local name, id, by, n, at, after, shown, input, continues, unnamed, most, keep_ms = unpack(ARGV)
-- Erased since its message was accepted: nothing of it may come back.
if redis.call('EXISTS', session) == 0 then return 0 end
local is_new = redis.call('EXISTS', response) == 0
keep_ms = tonumber(keep_ms)
local now = now_ms()
redis.call('HSET', response, 'ticket', id, 'session', name, 'by', by, 'n', n, 'at', at, 'after', after,
  'shown', shown, 'input', input, 'continues', continues)
redis.call('PEXPIRE', response, keep_ms)
-- Its turn may have ended before this: then the notice of that knew of no response.
if is_new and (parse_count(redis.call('HGET', session, 'log')) or 0) > tonumber(after) then
  add_notice(name, n, 0, 'kept ' .. id)
end
-- Records expire by themselves, their names in the lists with the next response.
for _, list in ipairs({responses, kept}) do
  -- The newest is last, also of two in one millisecond.
  local last = tonumber(redis.call('ZRANGE', list, -1, -1, 'WITHSCORES')[2] or 0)
  redis.call('ZADD', list, 'NX', string.format('%.3f', math.max(tonumber(at), last + 0.001)), id)
  redis.call('ZREMRANGEBYSCORE', list, '-inf', '(' .. integer(now - keep_ms))
  redis.call('PEXPIRE', list, keep_ms)
end
if unnamed == '1' then
  redis.call('ZADD', EPHEMERAL, integer(now + keep_ms), name)
end
-- One more than the limit is the usual case, and ten a call catch up after it was lowered.
local over = redis.call('ZCARD', kept) - tonumber(most)
if over > 0 then
  for _, old in ipairs(redis.call('ZRANGE', kept, 0, math.min(over, 10) - 1)) do
    local its = drop_response(old)
    redis.call('ZREM', kept, old)
    -- A session of nothing but stored responses ends with its last one; only those are here.
    if its and redis.call('ZCARD', key('responses', its)) == 0 then
      redis.call('ZADD', EPHEMERAL, 'XX', 0, its)
    end
  end
end
return 1
