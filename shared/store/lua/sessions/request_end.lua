#!lua flags=allow-oom
-- durable
-- Stores the first answer to a request under its key, or frees the key.
-- answer  '' = none: the key may be used again
-- returns 1 done, 0 the key is not this request's any more
local request = unpack(KEYS)
local ticket, answer, keep_ms = unpack(ARGV)
if redis.call('HGET', request, 'ticket') ~= ticket then return 0 end
-- Nothing came of the request: the same key may begin again.
if answer == '' then
  redis.call('DEL', request)
else
  -- Two gateways may answer the same request: the first answer counts.
  redis.call('HSETNX', request, 'answer', answer)
  redis.call('PEXPIRE', request, keep_ms)
end
return 1
