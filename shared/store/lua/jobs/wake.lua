#!lua flags=allow-oom
-- Wake one idle worker: something was made due by other means than our scripts.
-- KEYS   1 wake
-- arq's own jobs are queued without our scripts, for instance.
wake(KEYS[1])
return 1
