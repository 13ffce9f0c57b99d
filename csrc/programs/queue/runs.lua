--#fragment
-- Our clients and foreign ones use a lock or semaphore in alternating runs. When a client of ours
-- gets the free lock or permit, note_ours ends the foreign clients' run and begins ours.
--#section limit
local RUN_MS = 2000 -- a longer foreign run earns our clients no additional time
--#end

local function note_ours(now)
  local was = record_in(first_members())
  if not was or was.turns > 0 or was.unused > 0 then return end
  local run = math.max(0, math.min(now - was.began, RUN_MS))
  write_record(was, 1, 0, was.listeners, run, now)
end
