--#fragment
-- What an acquire, or a wait that ends, finds out before it serves the waiters of a queue.

-- How long what is free is left to clients that know no queue; to those that listen, while any
-- does. More than `most`, their longest turn: the server's clock went back. now: the ms of the
-- server's clock, if they are known.
local function foreign_ms(most, now)
  local was = record_in(first_members())
  if not was or was.listeners and foreign_waiters(RELEASES) == 0 then return 0 end
  local left = was.till - (now or now_ms())
  return left <= most and math.max(0, left) or 0
end

-- Forgets the waiters of a client that let a grant run out, among the first ones: it is dead, or as
-- good as dead.
local function evict(client)
  local gone = {}
  for _, member in ipairs(redis.call('ZRANGE', QUEUE, 0, 10 * BATCH - 1)) do
    if client_of(member) == client then gone[#gone + 1] = member end
  end
  if #gone > 0 then redis.call('ZREM', QUEUE, unpack(gone)) end
end
