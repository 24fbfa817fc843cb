#!lua flags=allow-oom
-- durable
-- Deletes a stored response.
-- by      its principal
-- returns how many its session has left, -1 if this principal has no such response
local response, responses = unpack(KEYS)
local id, by = unpack(ARGV)
if redis.call('HGET', response, 'by') ~= by then return -1 end
drop_response(id)
return redis.call('ZCARD', responses)
