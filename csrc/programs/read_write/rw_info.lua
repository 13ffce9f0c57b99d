--#include "read_write/rw.lua"
-- Reads a read/write lock, its fencing counter and its queue atomically.
--
-- KEYS[1] the lock, KEYS[2] its fencing counter, KEYS[3] its queue
-- ARGV[1] the uuid of the client that asks, or a waiter: "<uuid>:<number>"
--
-- { owner, holds, ttl ms, last token, waiters, ahead, readers, free permits, clock, waited };
-- owner: the writer, or else one of the readers, "" when free; `ahead`: see ahead.lua; free permits
-- 0: not for this kind; `clock` and `waited`: see times.lua
--#include "queue/ahead.lua"
--#include "queue/times.lua"

local fields, owner, holds, readers = redis.call('HGETALL', KEYS[1]), '', 0, 0
for i = 1, #fields, 2 do
  local count = tonumber(fields[i + 1])
  local writes = is_write(fields[i])
  if count and not writes then readers = readers + 1 end
  if count and (writes or owner == '') then owner, holds = fields[i], count end
end
return {
  owner, holds, redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[2]) or '0',
  redis.call('ZCOUNT', KEYS[3], '(0', '+inf'), ahead_of(ARGV[1]), readers, 0,
  times(),
}
