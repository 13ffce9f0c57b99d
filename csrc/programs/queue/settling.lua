--#fragment
-- Checks that an acquire, or a wait that ends, makes before it serves a queue's waiters.

-- → the ms for which the free lock or permits are still left to foreign clients; to those that
-- listen, only while any does. If more than `most`, their longest turn, remains, the server's clock
-- was set back: 0. now: the server's clock in ms, if known.
local function foreign_ms(most, now)
  local was = record_in(first_members())
  if not was or was.listeners and foreign_waiters(RELEASES) == 0 then return 0 end
  local left = was.till - (now or now_ms())
  return left <= most and math.max(0, left) or 0
end

-- Removes a client's waiters among the first members. It let a grant expire, and counts as dead.
local function evict(client)
  local gone = {}
  for _, member in ipairs(redis.call('ZRANGE', QUEUE, 0, 10 * BATCH - 1)) do
    if client_of(member) == client then gone[#gone + 1] = member end
  end
  if #gone > 0 then redis.call('ZREM', QUEUE, unpack(gone)) end
end
