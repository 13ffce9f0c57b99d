--#fragment
-- Limits how long foreign clients that listen have a free lock or permit, and ours after them.
local MAX_TURNS = 3 -- our maximum after a run in which a client of Redisson's was seen

-- → the ms for which the lock or permit is left to Redisson's waiters: LISTEN_MS, or twice their
-- last run, which counts from when the lock was left to them, whether or not one of them came.
-- After a run of MAX_LISTEN_MS or more, this starts over, because they may be dead.
local function listen_ms(was)
  local run = was and was.run or 0
  return run < MAX_LISTEN_MS and math.max(LISTEN_MS, math.min(2 * run, MAX_LISTEN_MS)) or LISTEN_MS
end

-- Adds a turn to the run of our clients if they then take no longer than Redisson's did before; but
-- after a run in which one of theirs was seen, ours get up to MAX_TURNS. Redisson may have taken
-- several turns in a row, because one release of theirs wakes all of their waiters but only one of
-- ours. If their run ends in the future, the server's clock was set back. → whether it did
local function add_turn(was, now)
  if not was or was.turns == 0 or was.unused > 0 then return false end
  if was.turns >= MAX_TURNS and not was.listeners then return false end
  local since = now - was.till
  if since < 0 or since * (was.turns + 1) > was.run * was.turns then return false end
  write_record(was, was.turns + 1, 0, was.listeners, was.run, was.till)
  return true
end
