#!lua flags=allow-oom
-- Wake one idle worker: something was made due by other means than our scripts.
-- KEYS   1 wake
wake(KEYS[1])
return 1
