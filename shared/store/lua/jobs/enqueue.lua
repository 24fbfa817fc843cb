#!lua
-- Queue a plain job as arq would, due now.
-- KEYS   1 queue  2 wake  3 job
-- ARGV   1 member  2 record  3 keep the record ms
-- returns 1 queued, 0 it was queued before
-- The record first: a worker that takes the member must find it.
redis.call('SET', KEYS[3], ARGV[2], 'PX', ARGV[3])
-- NX: a job that waits or runs keeps its place.
local queued = redis.call('ZADD', KEYS[1], 'NX', now_ms(), ARGV[1])
if queued == 1 then
  wake(KEYS[2])
end
return queued
