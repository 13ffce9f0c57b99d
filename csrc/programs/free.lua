--#fragment
-- Whether a caller that neither holds the lock nor waits for it finds it free, without a queue.
local LEASE, TOKEN_TTL = ARGV[5], ARGV[6]
local FREE = ARGV[3] == '0' and ARGV[7] == '' and redis.call('EXISTS', LOCK, QUEUE) == 0
