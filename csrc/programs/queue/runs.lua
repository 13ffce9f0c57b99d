--#fragment
-- Our clients and foreign ones use a lock or semaphore in alternating runs. When a client of ours
-- gets the free lock or permit, begin_our_run ends the foreign clients' run and begins ours.
--#section limit
local MAX_RUN_MS = 2000 -- a longer foreign run gives our clients no additional time
--#end

local function begin_our_run(now)
  local record = record_in(first_members())
  if not record or record.turns > 0 or record.unused > 0 then return end
  local run = math.max(0, math.min(now - record.began, MAX_RUN_MS))
  write_record(record, 1, 0, record.holders, run, now)
end
