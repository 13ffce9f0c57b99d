--#fragment
-- The members of a queue: what they are, and whether their clients listen. queue.lua tells where
-- they stand.
local BATCH = 100 -- of waiters that one script looks at

--#include "member.lua"

local function channel_of(member)
  return 'holdfast_grant:' .. client_of(member)
end

-- A client that may not publish leaves its waiters to their clocks: what it has written must not be
-- half done.
local function tell(member, ...)
  redis.pcall('PUBLISH', channel_of(member), '1 ' .. table.concat({ ... }, ' '))
end

-- The first one behind the record.
local function first()
  local members = first_members()
  local i = record_in(members) and 3 or 1
  return members[i], tonumber(members[i + 1])
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

-- Which of these waiters' clients listen: a set of channels. Patterns that somebody else listens to
-- do not count. And how many clients wait that know no queue.
local function listening(members, from)
  local channels, seen, set = {}, {}, {}
  for i = from, #members, 2 do
    local channel = channel_of(members[i])
    if not seen[channel] then channels[#channels + 1] = channel end
    seen[channel] = true
  end
  local foreign, counts = listeners(RELEASES, unpack(channels))
  for i = 1, #counts, 2 do set[counts[i]] = counts[i + 1] > 0 end
  return set, foreign
end

-- The first waiter of which is_over(member, alive) does not say that it is; those before it are
-- forgotten, of very many the first ones.
local function first_alive(is_over)
  for _ = 1, MOST_BATCHES do
    local members = redis.call('ZRANGEBYSCORE', QUEUE, '(0', '+inf', 'WITHSCORES', 'LIMIT', 0,
      BATCH)
    local alive = listening(members, 1)
    for i = 1, #members, 2 do
      if not is_over(members[i], alive) then return members[i] end
      redis.call('ZREM', QUEUE, members[i])
    end
    if #members == 0 then return nil end
  end
end
