--#fragment
-- Removes the record, so that the lock is not left to foreign clients. → whether there was one
local function forget_record()
  local record = record_in(first_members())
  if record then redis.call('ZREM', QUEUE, record.member) end
  return record ~= nil
end
