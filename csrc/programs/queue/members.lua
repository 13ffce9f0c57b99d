--#fragment
-- The queue members of locks, semaphores and read/write locks, and which of them can be served. For
-- their scores, see queue.lua. KINDS: the letters of the waiters that this type of key has.
local BATCH = 100 -- waiters read at once
local MAX_BATCHES = 10 -- maximum number of batches that one script removes or admits

--#include "queue/member.lua"

-- Sends a waiter `word`, its number and the rest, unless the member is nil or in another format.
local function notify(member, word, ...)
  local _, _, number = parse(member or '')
  if number then send(member, word, number, ...) end
end

-- → for each channel of these waiters, whether a client is subscribed to it (patterns do not
-- count); how many clients are subscribed to the lock's channel: see foreign_waiters
local function listening(members, from)
  local channels, seen, set = {}, {}, {}
  for i = from, #members, 2 do
    local channel = channel_of(members[i])
    if not seen[channel] then channels[#channels + 1] = channel end
    seen[channel] = true
  end
  local counts = redis.pcall('PUBSUB', 'NUMSUB', RELEASES, unpack(channels))
  for i = 3, #counts, 2 do set[counts[i]] = counts[i + 1] > 0 end
  return set, counts[2] or 0
end

-- Returns whether this member cannot be served: it is not a waiter, is dead, or waits for another
-- type of key; in the last case it is notified. alive: see listening. A waiter in a newer format
-- serves itself.
local function is_over(member, alive)
  local kind, _, number = parse(member)
  if not kind then return not is_newer(member) end
  if not KINDS:find(kind, 1, true) then send(member, 'recheck', number) return true end
  return not alive[channel_of(member)]
end

-- Removes the waiters before the first one for which over(member, alive) is false; if there are
-- very many, only some of them. size: the number to read first; nil: BATCH. → that waiter, or nil
local function first_alive(over, size)
  for batch = 0, MAX_BATCHES do
    local members = redis.pcall('ZRANGEBYSCORE', QUEUE, '(0', '+inf', 'WITHSCORES', 'LIMIT', 0,
      batch == 0 and size or BATCH)
    if #members == 0 then return nil end
    local alive = listening(members, 1)
    for i = 1, #members, 2 do
      if not over(members[i], alive) then return members[i] end
      redis.call('ZREM', QUEUE, members[i])
    end
  end
end
