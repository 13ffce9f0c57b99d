--#fragment
-- One of ours gets the free lock: the foreign clients' run ends, and ours begins.
local RUN_MS = 2000 -- ours get no more time in return for a longer run of theirs

local function note_ours()
  local was, now = record_in(first_members()), now_ms()
  if not was or was.turns > 0 or was.unused > 0 then return end
  local run = math.max(0, math.min(now - was.began, RUN_MS))
  write_record(was, 1, 0, was.listeners, run, now)
end
