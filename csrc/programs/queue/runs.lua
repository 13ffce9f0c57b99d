--#fragment
-- The runs of a lock or a semaphore. One of ours gets the free lock or permit: the foreign clients'
-- run ends, and ours begins.
--#section limit
local RUN_MS = 2000 -- ours get no more time in return for a longer run of theirs
--#end

local function note_ours(now)
  local was = record_in(first_members())
  if not was or was.turns > 0 or was.unused > 0 then return end
  local run = math.max(0, math.min(now - was.began, RUN_MS))
  write_record(was, 1, 0, was.listeners, run, now)
end
