--#fragment
--#include "queue/settling.lua"
-- Settles grants that expired: their holds are gone. Removes the waiter of each and, if it is a
-- writer, all waiters of that writer's client, which counts as dead. But `client` is asking now and
-- therefore alive: its waiters with a grant go to the front.
local function settle_missed_grants(client)
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', QUEUE, 0, 0, 'LIMIT', 0, BATCH)) do
    local kind, owning_client, _, _, owner = parse(member)
    local holder = kind == 'w' and owner .. ':write' or owner
    if not kind or redis.call('HEXISTS', LOCK, holder) == 0 then
      if owning_client == client then
        redis.call('ZADD', QUEUE, front_place(), member)
        redis.call('PEXPIRE', QUEUE, QUEUE_MS)
      else
        redis.call('ZREM', QUEUE, member)
        if kind == 'w' then evict(owning_client) end
      end
    end
  end
end
