--#include "layout.lua"
-- Reads a lock, its fencing counter and its queue at one moment.
--
-- KEYS[1] the lock, KEYS[2] its fencing counter, KEYS[3] its queue
-- ARGV[1] a waiter of ours, "": none
--
-- { owner, holds, ttl ms, last token, waiters, ahead }; owner "" when free; ahead -1 when not queued
local holder = holder_of(KEYS[1])
local score = ARGV[1] ~= '' and redis.call('ZSCORE', KEYS[3], ARGV[1])
return {
  holder or '',
  holder and holds_of(KEYS[1], holder) or 0,
  redis.call('PTTL', KEYS[1]),
  redis.call('GET', KEYS[2]) or '0',
  redis.call('ZCOUNT', KEYS[3], '(0', '+inf'),
  score and redis.call('ZCOUNT', KEYS[3], '(0', '(' .. score) or -1,
}
