--#fragment
--#include "queue/settling.lua"
-- Grants that ran out, as their holds are gone. A writer's client is as good as dead: all its
-- waiters are forgotten, unless it is here to ask; that one's waiter keeps its place.
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
