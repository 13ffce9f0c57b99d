--#fragment
-- Nothing is left to clients that know no queue any more. → whether there was a record
local function forget_record()
  local was = record_in(first_members())
  if was then redis.call('ZREM', QUEUE, was.member) end
  return was ~= nil
end
