#!lua flags=allow-oom
-- Stores the first answer to a request under its key, or frees the key.
-- KEYS   1 answer
-- ARGV   1 ticket  2 answer ('' = none: the key may be used again)  3 keep it ms
-- returns 1 done, 0 the key is not this request's any more
if redis.call('HGET', KEYS[1], 'ticket') ~= ARGV[1] then return 0 end
-- Nothing came of the request: the same key may begin again.
if ARGV[2] == '' then
  redis.call('DEL', KEYS[1])
else
  -- Two gateways may answer the same request: the first answer counts.
  redis.call('HSETNX', KEYS[1], 'answer', ARGV[2])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return 1
