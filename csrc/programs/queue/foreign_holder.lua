--#fragment
-- Records that a foreign client holds the lock, so the lock is no longer left to those that listen.
-- From now on, clients that poll get turns of a lock; a read/write lock has no such clients.
local function record_foreign_holder()
  local record, now = record_in(first_members()), now_ms()
  local is_recorded = record and record.turns == 0 and record.unused == 0 and not record.listeners
  if is_recorded and record.till <= now then return end
  local began = record and record.listeners and math.min(now, record.began) or now
  write_record(record, 0, 0, false, 0, began)
end
