--#fragment
-- Redisson's waiters and ours get the permits in turns, as those of a lock do: during Redisson's
-- turn, our clients leave its waiters one free permit. TURN contains the record of record.lua:
-- "<score> <member>", whose `listeners` becomes 0 once a client of Redisson's was seen.
local RECORD_MS = 5000 -- for which the record is kept if nothing changes it

--#include "base/clock.lua"
--#include "queue/record.lua:reading"
--#include "queue/runs.lua:limit"
-- text: the reply to GET. → the record, or nil
local function read_record(text)
  local score, member = (text or ''):match('^(%S+) (.*)$')
  return record_in({ member, score })
end

local function write_record(_, turns, unused, listeners, run, till)
  local text = '%.0f 1f %d %d %d %.0f'
  text = text:format(-till, turns, unused, listeners and 1 or 0, run)
  redis.call('SET', TURN, text, 'PX', RECORD_MS)
end

local function listeners(channel)
  return redis.pcall('PUBSUB', 'NUMSUB', channel)[2] or 0
end

-- → the number of listening Redisson clients. Ours also listen to a second channel; subtracting its
-- listeners leaves only Redisson's.
local function redissons()
  local all = listeners(KEYS[3])
  if all > 0 then all = all - listeners(KEYS[3] .. ':holdfast') end
  return foreign_waiters(KEYS[3], all)
end

-- → for how many more ms one permit is left to Redisson's waiters; 0 if more than their longest
-- turn remains, because the server's clock was set back
local function left_ms(was, now)
  if not was or redissons() == 0 then return 0 end
  local ms = was.till - now
  return ms <= MAX_LISTEN_MS and math.max(ms, 0) or 0
end
