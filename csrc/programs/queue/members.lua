--#fragment
-- The queue members of locks, semaphores and read/write locks, and which of them can be served. For
-- their scores, see queue.lua. WAITER_KINDS: the letters of the waiters that this type of key has.
local BATCH = 100 -- waiters read at once
local MAX_BATCHES = 10 -- maximum number of batches that one script removes or admits

--#include "queue/member.lua"

-- Sends a waiter's client `word`, the waiter's number and the other arguments, unless the member is
-- nil or in another format.
local function notify(member, word, ...)
  local _, _, number = parse(member or '')
  if number then send(member, word, number, ...) end
end

-- members: waiters with their scores, read from index `from`. → for each channel of these waiters,
-- whether a client is subscribed to it (patterns do not count); the number of clients subscribed to
-- the lock's channel: see foreign_waiters
local function listening(members, from)
  local channels, seen, alive = {}, {}, {}
  for i = from, #members, 2 do
    local channel = channel_of(members[i])
    if not seen[channel] then channels[#channels + 1] = channel end
    seen[channel] = true
  end
  local counts = redis.pcall('PUBSUB', 'NUMSUB', RELEASES, unpack(channels))
  for i = 3, #counts, 2 do alive[counts[i]] = counts[i + 1] > 0 end
  return alive, counts[2] or 0
end

-- Notifies a waiter for another type of key. → whether this member cannot be served: it is such a
-- waiter, is dead, or is not a waiter. alive: see listening. A waiter in a newer format serves
-- itself.
local function reject_unservable(member, alive)
  local kind, _, number = parse(member)
  if not kind then return not is_newer(member) end
  if not WAITER_KINDS:find(kind, 1, true) then send(member, 'recheck', number) return true end
  return not alive[channel_of(member)]
end

-- Removes the waiters before the first one for which reject(member, alive) is false; if there are
-- very many, only some of them. size: the number of waiters to read first; nil: BATCH. → the first
-- waiter that remains, or nil
local function prune_to_first_alive(reject, size)
  for batch = 0, MAX_BATCHES do
    local members = redis.pcall('ZRANGEBYSCORE', QUEUE, '(0', '+inf', 'WITHSCORES', 'LIMIT', 0,
      batch == 0 and size or BATCH)
    if #members == 0 then return nil end
    local alive = listening(members, 1)
    for i = 1, #members, 2 do
      if not reject(members[i], alive) then return members[i] end
      redis.call('ZREM', QUEUE, members[i])
    end
  end
end
