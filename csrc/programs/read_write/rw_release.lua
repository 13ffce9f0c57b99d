--#include "base/keys.lua"
--#include "CHANNEL:announcing"
-- Releases one hold. After the last one, waiters may get the lock. A writer that also reads
-- continues as a reader. Safe to resend.
--
-- ARGV[3] remaining  the hold count that remains; 0: none
-- ARGV[4] lease      ms, the minimum lease of remaining holds
-- ARGV[5] unused
-- ARGV[6] waiter     the member of an unconfirmed grant; may be left out
--
-- 1 no hold remains; 3 the same, but waiters remain to be served: call rw_leave.lua; 2 some remain;
-- not held by this owner: -1 the key is gone, -2 others hold it
local REMAINING, LEASE, WAITER = tonumber(ARGV[3]), ARGV[4], ARGV[6]

local holds = tonumber(redis.call('HGET', LOCK, OWNER))
if not holds then
  return redis.call('EXISTS', LOCK) == 0 and -1 or -2
end
-- The common case, in straight-line code as in acquire.lua: no client of ours waits, and the owner
-- has no other hold. Other readers may remain: if the lock's TTL came from this reader's lease, the
-- TTL is cut to the longest lease of the other readers. The code that follows handles everything
-- else, such as dead readers to remove, or a writer that reads.
if REMAINING == 0 and holds == 1 and redis.call('EXISTS', QUEUE) == 0 then
  local call, left = redis.call, redis.call('HLEN', LOCK) - 2
  local tag = (LOCK:find('{', 1, true) and LOCK or '{' .. LOCK .. '}') .. ':'
  local reads = OWNER:sub(-6) ~= ':write'
  local own_lease_key = tag .. OWNER .. ':rwlock_timeout:1'
  if left == 0 then
    call('DEL', LOCK)
    if reads then call('DEL', own_lease_key) end
    if announce(RELEASES, reads and '0' or '1') == 0 then return 1 end
    holds = 0
  elseif left <= 100 and call('HGET', LOCK, 'mode') == 'read' then -- MAX_SEARCHED of rw.lua
    local own_lease_ms, lock_ms = call('PTTL', own_lease_key), call('PTTL', LOCK)
    local longest_ms, fields = own_lease_ms < lock_ms and own_lease_ms or 0, nil
    if longest_ms == 0 then fields = call('HGETALL', LOCK) end
    for i = 1, fields and #fields or 0, 2 do
      local owner, count = fields[i], fields[i + 1]
      if owner ~= OWNER and owner ~= 'mode' then
        local ms = count == '1' and call('PTTL', tag .. owner .. ':rwlock_timeout:1') or 0
        longest_ms = ms > 0 and math.max(longest_ms, ms) or nil
        if not longest_ms or longest_ms >= own_lease_ms then break end
      end
    end
    if longest_ms then
      call('DEL', own_lease_key)
      call('HDEL', LOCK, OWNER)
      if longest_ms < own_lease_ms then call('PEXPIRE', LOCK, longest_ms) end
      return 1
    end
  end
end

--#include "base/clock.lua"
--#include "token/token.lua"
--#include "read_write/rw.lua"
--#include "read_write/rw_token.lua"
--#include "base/owners.lua:ours"
--#include "queue/placing.lua"
--#include "queue/passing_over.lua:first_in_line"
--#include "read_write/rw_queue.lua"
if holds == 0 then
  if is_write(OWNER) then announce(RELEASES, '0') end -- see announce_free
  if foreign_waiters(RELEASES) > 0 then write_turn(nil, LISTEN_MS) end
  return 1
end
if WAITER then redis.pcall('ZREM', QUEUE, WAITER) end
local result = release_holds(holds, REMAINING)
if result == 2 then renew_holds(LOCK, OWNER, REMAINING, LEASE) end
return result
