--#fragment
--#section counting
local MAX_HOLDERS = 9

-- Counts another holder of a foreign run if the caller is our first waiter, which asks at least
-- once for each holder that it notices. members: the queue's first members, with their scores.
local function count_holder(record, members)
  if members[3] == WAITER and record.holders + 0 < MAX_HOLDERS then
    write_record(record, 0, 0, record.holders + 1, 0, record.till)
  end
end
--#end

-- Records that a foreign client holds the lock, so the lock is no longer left to those that listen.
-- From now on, clients that poll get turns of a lock; a read/write lock has no such clients.
local function record_foreign_holder()
  local members, now = first_members(), now_ms()
  local record = record_in(members)
  local in_run = record and record.turns == 0 and record.unused == 0 and not record.listeners
  if in_run and record.till <= now then return count_holder(record, members) end
  local began = record and record.listeners and math.min(now, record.began) or now
  write_record(record, 0, 0, 1, 0, began)
end
