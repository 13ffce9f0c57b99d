--#fragment
-- What extend.lua does to the lock. Defines shorter: whether it ends earlier than others count on.
if not holds_of(KEYS[1], ARGV[1]) then
  return redis.call('EXISTS', KEYS[1]) == 0 and -1 or -2
end
if ARGV[2] == '0' then return 1 end
local ttl_ms, most = redis.call('PTTL', KEYS[1]), tonumber(ARGV[3])
local stays = most and ttl_ms > most and ttl_ms >= tonumber(ARGV[2])
redis.call('PEXPIRE', KEYS[1], stays and ttl_ms or ARGV[2])
if ARGV[4] ~= '' then redis.pcall('ZREM', KEYS[2], ARGV[4]) end
local shorter = not stays and ttl_ms > tonumber(ARGV[2])
