--#fragment
--#include "queue/settling.lua"
-- Settles grants that expired: their holds are gone. A writer's client counts as dead, and all its
-- waiters are removed. If the client is asking now, its waiter goes to the front instead.
local function settle_missed_grants(client)
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', QUEUE, 0, 0, 'LIMIT', 0, BATCH)) do
    local kind, of, _, _, owner = parse(member)
    local held_by = kind == 'w' and owner .. ':write' or owner
    if not kind or redis.call('HEXISTS', LOCK, held_by) == 0 then
      if of == client then
        redis.call('ZADD', QUEUE, front_place(), member)
        redis.call('PEXPIRE', QUEUE, QUEUE_MS)
      else
        redis.call('ZREM', QUEUE, member)
        if kind == 'w' then evict(of) end
      end
    end
  end
end
