-- Decides which run counts for one firing of a schedule. A record says which run counts, and when
-- that run arrived by this server's clock: it counts instead of other runs that arrive less than
-- half a period before or after it.
--
-- KEYS[1] the record: "<at> <state> <token> <by> <who>"
-- ARGV[1] by        the run's identifier, without spaces
-- ARGV[2] at        ms of the server's clock at which it arrived, "": now
-- ARGV[3] state     "": only ask; "claimed": the run has no lock yet; "running": it has the lock;
--                   "done", "failed" or "unstarted": how it ended
-- ARGV[4] token     the lock's token, "0": the run has no lock yet
-- ARGV[5] half      ms, half of the period
-- ARGV[6] ttl       ms, the TTL of the record
-- ARGV[7] retry     1: another run may start if one failed, or ended without recording how
-- ARGV[8] who       "host pid[ name]"
--
-- { may, at, now, record } may 1: this run counts, or its end was recorded; 0: this run does not
-- count, or the record is now another run's. `record`: the record before this call; "": none
--
-- The program writes only once, so a failure never leaves an incomplete record. If a command is
-- sent twice, the second copy finds what the first one did.
local RECORD, BY, STATE, HALF, RETRY = KEYS[1], ARGV[1], ARGV[3], tonumber(ARGV[5]), ARGV[7] == '1'
local ENDS = { done = true, failed = true, unstarted = true }

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local at, token = tonumber(ARGV[2]) or now, ARGV[4]
local record = redis.call('GET', RECORD) or ''
local old_at, old_state, old_token, old_by = record:match('^(%d+) (%a+) (%d+) (%S+) ')
old_at = tonumber(old_at)
local is_ours = old_by == BY

local function reply(may)
  return { may, at, now, record }
end

local function write()
  local new_record = string.format('%.0f %s %s %s %s', at, STATE, token, BY, ARGV[8])
  redis.call('SET', RECORD, new_record, 'PX', ARGV[6])
  return reply(1)
end

if ENDS[STATE] then
  -- There is no record, because the run took longer than the record's TTL.
  if record == '' and at + tonumber(ARGV[6]) <= now then return write() end
  if not is_ours then return reply(0) end
  at, token = old_at, old_token
  return write()
end
if is_ours and old_state ~= 'claimed' then return reply(1) end
if old_state and not is_ours then
  -- After the clock was set back, a record from the future says nothing about the order.
  local is_past = old_at <= now
  local has_run = old_state ~= 'claimed' and old_state ~= 'unstarted'
  if is_past and has_run and at <= old_at - HALF then return reply(0) end
  if is_past and STATE == 'running' and tonumber(token) < tonumber(old_token) then return reply(0) end
  local may_run_again = old_state == 'unstarted' or RETRY and old_state ~= 'done'
  if math.abs(at - old_at) < HALF and not may_run_again then return reply(0) end
end
if STATE == '' then return reply(1) end
if STATE == 'claimed' then token = old_token or '0' end
return write()
