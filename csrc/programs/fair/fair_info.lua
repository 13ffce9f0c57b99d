--#include "lock/hash.lua:layout"
--#include "lock/hash.lua:holding"
-- Reads a fair lock, its fencing counter and its list atomically.
--
-- KEYS[1] the lock, KEYS[2] its fencing counter, KEYS[3] its list
-- ARGV[1] the uuid of the client that asks, or a waiter: "<uuid>:<number>"
--
-- { owner, holds, ttl ms, last token, waiters, ahead, readers, free permits, clock, waited }; owner
-- "" when free; `ahead`: see ahead.lua; readers is -1 and free permits is 0, because this kind has
-- neither; `clock` in µs; waited -1: a list does not show how long its owners have waited
--#include "base/clock.lua"
--#include "queue/ahead.lua:deaf"

local waiters = redis.call('LRANGE', KEYS[3], 0, -1)

local function ahead_of(asked)
  local start = asked .. ':'
  for index, owner in ipairs(is_deaf(asked) and {} or waiters) do
    if (owner .. ':'):sub(1, #start) == start then return index - 1 end
  end
  return -1
end

local holder = holder_of(KEYS[1])
return {
  holder or '',
  holder and holds_of(KEYS[1], holder) or 0,
  redis.call('PTTL', KEYS[1]),
  redis.call('GET', KEYS[2]) or '0',
  #waiters,
  ahead_of(ARGV[1]),
  -1,
  0,
  server_us(),
  -1,
}
