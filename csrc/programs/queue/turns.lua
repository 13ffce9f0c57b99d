--#fragment
-- Limits how long a free lock or permit is left to listening foreign clients, and then to ours.
local MIN_TURNS = 3 -- ours may take at least this many turns after a run of Redisson's

-- → the ms for which the lock or permit is left to Redisson's waiters: LISTEN_MS, or twice their
-- last run if that is longer. A run begins when the lock is left to them, whether or not one of
-- them takes it. After a run of MAX_LISTEN_MS or more, the time is LISTEN_MS again, because the
-- waiters may be dead.
local function listen_ms(record)
  local run = record and record.run or 0
  return run < MAX_LISTEN_MS and math.max(LISTEN_MS, math.min(2 * run, MAX_LISTEN_MS)) or LISTEN_MS
end

-- Adds a turn to the run of our clients if their run then is no longer than Redisson's last run;
-- but after a run in which holders of Redisson's were seen, ours get at most as many turns as there
-- were holders, or MIN_TURNS, because Redisson may be slow to take its turns. If their run ends in
-- the future, the server's clock was set back. → whether a turn was added
local function add_turn(record, now)
  if not record or record.turns == 0 or record.unused > 0 then return false end
  local max_turns = math.max(MIN_TURNS, tonumber(record.holders) or math.huge)
  if record.turns >= max_turns then return false end
  local since_ms = now - record.till
  if since_ms < 0 or since_ms * (record.turns + 1) > record.run * record.turns then return false end
  write_record(record, record.turns + 1, 0, record.holders, record.run, record.till)
  return true
end
