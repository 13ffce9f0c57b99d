--#fragment
-- Notifies a run's waiters that it is done. Removes them, and members that are not waiters, from
-- the queue. → whether members remain for the next script
local function notify_done()
  local gone = {}
  for _, member in ipairs(redis.call('ZRANGE', QUEUE, '0', digits(MAX_BATCHES * BATCH - 1))) do
    local kind, _, number = parse(member)
    if kind == 'g' then send(member, 'recheck', number) end
    if kind == 'g' or not (kind or is_newer(member)) then gone[#gone + 1] = member end
  end
  if #gone > 0 then redis.call('ZREM', QUEUE, unpack(gone)) end
  return #gone > 0 and redis.call('EXISTS', QUEUE) == 1
end
