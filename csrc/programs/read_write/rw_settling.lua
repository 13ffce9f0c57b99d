--#fragment
--#include "queue/settling.lua"
-- Settles grants that expired: their holds are gone. Removes the waiter and, if it is a writer, all
-- of its client's waiters, because that client counts as dead. But `client` is asking now: its
-- waiters with a grant go to the front.
local function settle_missed_grants(client)
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', QUEUE, 0, 0, 'LIMIT', 0, BATCH)) do
    local kind, owning_client, _, _, owner = parse(member)
    local held_by = kind == 'w' and owner .. ':write' or owner
    if not kind or redis.call('HEXISTS', LOCK, held_by) == 0 then
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
