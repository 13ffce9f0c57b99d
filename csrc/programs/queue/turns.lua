--#fragment
-- Limits how long a free lock or permit is left to listening foreign clients, and then to ours.
local MAX_TURNS = 3 -- maximum of our turns after a run in which a client of Redisson's was seen

-- → the ms for which the lock or permit is left to Redisson's waiters: LISTEN_MS, or twice their
-- last run if that is longer. A run begins when the lock is left to them, whether or not one of
-- them takes it. After a run of MAX_LISTEN_MS or more, the time is LISTEN_MS again, because the
-- waiters may be dead.
local function listen_ms(record)
  local run = record and record.run or 0
  return run < MAX_LISTEN_MS and math.max(LISTEN_MS, math.min(2 * run, MAX_LISTEN_MS)) or LISTEN_MS
end

-- Adds a turn to the run of our clients if their run then is no longer than Redisson's last run;
-- but after a run in which a client of Redisson's was seen, ours get up to MAX_TURNS. Redisson may
-- have taken several turns in a row, because one release of theirs wakes all of their waiters but
-- only one of ours. If their run ends in the future, the server's clock was set back. → whether a
-- turn was added
local function add_turn(record, now)
  if not record or record.turns == 0 or record.unused > 0 then return false end
  if record.turns >= MAX_TURNS and not record.listeners then return false end
  local since_ms = now - record.till
  if since_ms < 0 or since_ms * (record.turns + 1) > record.run * record.turns then return false end
  write_record(record, record.turns + 1, 0, record.listeners, record.run, record.till)
  return true
end
