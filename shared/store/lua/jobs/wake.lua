#!lua flags=allow-oom
-- Wake one idle worker: something was made due by other means than our scripts.
local wake_list = unpack(KEYS)
-- arq's own jobs are queued without our scripts, for instance.
wake(wake_list)
return 1
