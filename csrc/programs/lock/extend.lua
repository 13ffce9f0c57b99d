--#include "LAYOUT:layout"
-- Sets a new lease, which also confirms a grant. Changes nothing if another owner holds the lock.
-- An unchanged TTL is written again, so that a later WAIT covers it. Safe to resend.
--
-- KEYS[1] the lock, KEYS[2] its queue
-- ARGV[1] owner, ARGV[2] lease in ms, 0: only check
-- ARGV[3] a TTL above this many ms is not shortened, "": any TTL may be shortened
-- ARGV[4] the member of the queue that was granted the lock, "": none
-- ARGV[5] the channel of releases. It is not in KEYS, because no such key exists, and while a
-- cluster moves the slot, the server refuses a command with a key that does not exist
--
-- 1 held by this owner; -1 the key is gone, -2 another owner holds it
--#section extending
-- Defines is_shortened: whether the lock now ends earlier than others expect.
if not holds_of(KEYS[1], ARGV[1]) then
  return redis.call('EXISTS', KEYS[1]) == 0 and -1 or -2
end
if ARGV[2] == '0' then return 1 end
local ttl_ms, max_ms = redis.call('PTTL', KEYS[1]), tonumber(ARGV[3])
local remains = max_ms and ttl_ms > max_ms and ttl_ms >= tonumber(ARGV[2])
redis.call('PEXPIRE', KEYS[1], remains and ttl_ms or ARGV[2])
if ARGV[4] ~= '' then redis.pcall('ZREM', KEYS[2], ARGV[4]) end
local is_shortened = not remains and ttl_ms > tonumber(ARGV[2])
--#end
if is_shortened then
--#include "CHANNEL:announcing"
--#include "queue/shortened.lua"
  announce(ARGV[5])
end
return 1
