--#fragment
-- Checks that an acquire, or a wait that ends, makes before it serves a queue's waiters.

-- → the ms for which the free lock or permits are still left to foreign clients; to listening
-- clients, only while there are any. 0 if more than max_ms, their longest turn, remains, because
-- the server's clock was set back. now: the server's clock in ms, if known.
local function foreign_ms(max_ms, now)
  local record = record_in(first_members())
  if not record or record.listeners and foreign_waiters(RELEASES) == 0 then return 0 end
  local left_ms = record.till - (now or now_ms())
  return left_ms <= max_ms and math.max(0, left_ms) or 0
end

-- Removes a client's waiters among the first members. The client let a grant expire, and counts as
-- dead.
local function evict(client)
  local gone = {}
  for _, member in ipairs(redis.call('ZRANGE', QUEUE, 0, 10 * BATCH - 1)) do
    if client_of(member) == client then gone[#gone + 1] = member end
  end
  if #gone > 0 then redis.call('ZREM', QUEUE, unpack(gone)) end
end
