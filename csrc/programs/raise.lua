-- Lifts a fencing counter, so that the next token is above one that another server gave out. Safe
-- to send twice.
--
-- KEYS[1] the counter
-- ARGV[1] token, ARGV[2] ttl ms of a counter of ours, 2^53 - 1 or more: none
--
-- 1
local last = tonumber(redis.call('GET', KEYS[1]))
if last and last >= tonumber(ARGV[1]) then return 1 end
local endless = tonumber(ARGV[2]) >= 9007199254740991
if endless or last and redis.call('PTTL', KEYS[1]) == -1 then
  redis.call('SET', KEYS[1], ARGV[1])
else
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
return 1
