#!lua
-- durable
-- Queue a plain job as arq would, due now.
-- returns 1 queued, 0 it was queued before
local queue, wake_list, job = unpack(KEYS)
local id, record, keep_ms = unpack(ARGV)
-- The record first: a worker that takes the member must find it.
redis.call('SET', job, record, 'PX', keep_ms)
-- NX: a job that waits or runs keeps its place.
local queued = redis.call('ZADD', queue, 'NX', now_ms(), id)
if queued == 1 then
  wake(wake_list)
end
return queued
