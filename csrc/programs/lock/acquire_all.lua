--#include "base/keys.lua"
--#include "base/clock.lua"
--#include "token/ranges.lua"
--#include "lock/hash.lua:layout"
--#include "lock/hash.lua:holding"
--#include "base/owners.lua:ours"
--#include "base/owners.lua:redisson_owner"
--#include "queue/placing.lua"
--#include "CHANNEL:announcing"
--#include "queue/queue.lua"
--#include "queue/runs.lua"
-- Acquires several locks, all or none. Does not wait for any of them, and never overtakes their
-- queues. Safe to resend.
--
-- KEYS[4i - 3 .. 4i] lock i with its counter, queue and channel
-- ARGV[1] unused, ARGV[2] grant lease in ms, ARGV[3] lease in ms
-- ARGV[4] token TTL in ms, 0: no fencing
-- ARGV[2i + 3] the owner of lock i, ARGV[2i + 4] its hold count as far as the client knows
--
-- { 1, token 1, token 2, … }  acquired; token 0: unchanged, or no fencing
-- { 0, i, ttl ms }            lock i is taken; ttl -2: free, but left to others
-- { -6, i, kind }             the key of lock i belongs to another kind: "guard", "read_write"
-- { -1, i } { -2, i }         the owner's hold of lock i is lost: -1 the key is gone, -2 another
--                             owner holds it
local LEASE, TOKEN_TTL = ARGV[3], ARGV[4]

local function select_lock(i)
  LOCK, COUNTER, QUEUE, RELEASES = KEYS[4 * i - 3], KEYS[4 * i - 2], KEYS[4 * i - 1], KEYS[4 * i]
  OWNER = ARGV[2 * i + 3]
  return tonumber(ARGV[2 * i + 4])
end

-- Called for a lock without a key. Serves its queue first. → whether the caller may take the lock,
-- because nobody else is waiting or comes first
local function serve_others()
  if redis.call('EXISTS', QUEUE) == 0 then return true end
  settle_missed_grant(OWNER:sub(1, 36))
  if foreign_ms(POLL_MS) > 0 then return false end
  local handed_over = hand_over()
  begin_our_run(now_ms())
  return handed_over == false and not first_after_record()
end

-- → the program's reply if lock i cannot be acquired, or nil
local function refusal(i, from)
  if from > 0 then
    if holds_of(LOCK, OWNER) then return nil end
    return { redis.call('EXISTS', LOCK) == 0 and -1 or -2, i }
  end
  local _, count, kind = holder_of(LOCK, OWNER)
  if kind and kind ~= 'lock' then return { -6, i, kind } end
  if count or not kind and serve_others() then return nil end
  return { 0, i, redis.call('PTTL', LOCK) }
end

for i = 1, #KEYS / 4 do
  local reply = refusal(i, select_lock(i))
  if reply then return reply end
end
local reply = { 1 }
for i = 1, #KEYS / 4 do -- drawing a token can fail, so it comes before the first hold
  reply[i + 1] = select_lock(i) == 0 and next_token(TOKEN_TTL) or 0
end
for i = 1, #KEYS / 4 do
  local from = select_lock(i)
  set_holds(LOCK, OWNER, from + 1, LEASE)
end
return reply
