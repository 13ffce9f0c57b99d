--#include "LAYOUT:layout"
--#include "LAYOUT:holding"
-- Reads a lock, its fencing counter and its queue atomically.
--
-- KEYS[1] the lock, KEYS[2] its fencing counter, KEYS[3] its queue
-- ARGV[1] the uuid of the client that asks, or a waiter: "<uuid>:<number>"
--
-- { owner, holds, ttl ms, last token, waiters, ahead, readers, free permits, clock, waited }; owner
-- "" when free; `ahead`: see ahead.lua; readers is -1 and free permits is 0, because this kind has
-- neither; `clock` and `waited`: see times.lua
--#include "queue/ahead.lua"
--#include "queue/times.lua"

local holder = holder_of(KEYS[1])
return {
  holder or '',
  holder and holds_of(KEYS[1], holder) or 0,
  redis.call('PTTL', KEYS[1]),
  redis.call('GET', KEYS[2]) or '0',
  redis.call('ZCOUNT', KEYS[3], '(0', '+inf'),
  ahead_of(ARGV[1]),
  -1,
  0,
  times(),
}
