--#fragment
-- Removes the record, so that the lock is not left to foreign clients. → whether there was one
local function forget_record()
  local was = record_in(first_members())
  if was then redis.call('ZREM', QUEUE, was.member) end
  return was ~= nil
end
