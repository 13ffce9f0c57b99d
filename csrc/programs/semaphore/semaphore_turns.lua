--#fragment
-- Redisson's waiters and ours take turns to get the permits, as the waiters of a lock do: during
-- Redisson's turn, our clients leave one free permit to its waiters. TURN contains the record of
-- record.lua as "<score> <member>"; `holders` becomes 0 when a client of Redisson's is seen.
local RECORD_MS = 5000 -- the record's TTL

--#include "base/clock.lua"
--#include "queue/record.lua:reading"
--#include "queue/runs.lua:limit"
-- stored: the reply to GET TURN. → the record, or nil
local function read_record(stored)
  local score, member = (stored or ''):match('^(%S+) (.*)$')
  return record_in({ member, score })
end

local function write_record(_, turns, unused, holders, run, till)
  local format = '%.0f 1f %d %d %s %.0f'
  local stored = format:format(-till, turns, unused, holders, run)
  redis.call('SET', TURN, stored, 'PX', RECORD_MS)
end

local function listeners(channel)
  return redis.pcall('PUBSUB', 'NUMSUB', channel)[2] or 0
end

-- → the number of listening Redisson clients. Our clients also listen to a second channel;
-- subtracting the second channel's listeners leaves only Redisson's.
local function redisson_listeners()
  local all = listeners(KEYS[3])
  if all > 0 then all = all - listeners(KEYS[3] .. ':holdfast') end
  return foreign_waiters(KEYS[3], all)
end

-- → the ms for which one permit is still left to Redisson's waiters; 0 if more than their longest
-- turn remains, because the server's clock was set back
local function left_ms(record, now)
  if not record or redisson_listeners() == 0 then return 0 end
  local ms = record.till - now
  return ms <= MAX_LISTEN_MS and math.max(ms, 0) or 0
end
