--#fragment
-- One of ours gets the free lock: the foreign clients' run ends, and ours begins.
local RUN_MS = 2000 -- ours get no more time in return for a longer run of theirs

local function note_ours(now)
  local was = record_in(first_members())
  if not was or was.turns > 0 or was.unused > 0 then return end
  local run = math.max(0, math.min(now - was.began, RUN_MS))
  write_record(was, 1, 0, was.listeners, run, now)
end

-- A foreign client has taken what was left to those that listen: their turn ends with that run.
local function note_taken(now)
  local was = record_in(first_members())
  if not was or was.turns > 0 or not was.listeners then return end
  write_record(was, 0, 0, false, 0, math.min(now, was.began))
end
