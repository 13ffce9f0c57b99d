-- Decides which run counts for a fire of a schedule. A record says which one did, and when it
-- arrived by this server's clock: it counts for runs that arrive less than half a period before or
-- after it.
--
-- KEYS[1] the record: "<at> <state> <token> <by> <who>"
-- ARGV[1] by        the run, without spaces
-- ARGV[2] at        ms of the server's clock at which it arrived, "": now
-- ARGV[3] state     "": only ask; "claimed": before it has the lock; "running": it has the lock;
--                   "done", "failed" or "unstarted": how it ended
-- ARGV[4] token     of the lock, "0": before it has the lock
-- ARGV[5] half      ms, half of the period
-- ARGV[6] ttl       ms for which the record is kept
-- ARGV[7] retry     1: if a run failed, or ended without recording it, another one may run
-- ARGV[8] who       "host pid[ name]"
--
-- { may, at, now, record } may 1: it counts, or its end is recorded; 0: it does not, or its record
-- is now another run's. `record` is the one before this call; "": none
--
-- There is one write, so no failure leaves half a record. A command that is sent twice finds what
-- the first one did.
local RECORD, BY, STATE, HALF, RETRY = KEYS[1], ARGV[1], ARGV[3], tonumber(ARGV[5]), ARGV[7] == '1'
local ENDS = { done = true, failed = true, unstarted = true }

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local at, token = tonumber(ARGV[2]) or now, ARGV[4]
local kept = redis.call('GET', RECORD) or ''
local was_at, was, was_token, was_by = kept:match('^(%d+) (%a+) (%d+) (%S+) ')
was_at = tonumber(was_at)
local is_ours = was_by == BY

local function reply(may)
  return { may, at, now, kept }
end

local function write()
  local text = string.format('%.0f %s %s %s %s', at, STATE, token, BY, ARGV[8])
  redis.call('SET', RECORD, text, 'PX', ARGV[6])
  return reply(1)
end

if ENDS[STATE] then
  -- the run took longer than its record was kept
  if kept == '' and at + tonumber(ARGV[6]) <= now then return write() end
  if not is_ours then return reply(0) end
  at, token = was_at, was_token
  return write()
end
if is_ours and was ~= 'claimed' then return reply(1) end
if was and not is_ours then
  -- after the clock was set back, a record from the future says nothing about order
  local is_past = was_at <= now
  local has_run = was ~= 'claimed' and was ~= 'unstarted'
  if is_past and has_run and at <= was_at - HALF then return reply(0) end
  if is_past and STATE == 'running' and tonumber(token) < tonumber(was_token) then return reply(0) end
  local again = was == 'unstarted' or RETRY and was ~= 'done'
  if math.abs(at - was_at) < HALF and not again then return reply(0) end
end
if STATE == '' then return reply(1) end
if STATE == 'claimed' then token = was_token or '0' end
return write()
