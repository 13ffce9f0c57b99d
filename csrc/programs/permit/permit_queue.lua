--#fragment
-- A semaphore's queue is like that of a lock (queue.lua), but several waiters may have an
-- unconfirmed grant, and a waiter that needs more permits than are free keeps those behind it
-- waiting.
local KINDS = 'p'

--#include "queue/members.lua"
--#include "queue/settling.lua"
--#include "queue/runs.lua"
-- → the number of free permits that are left to foreign clients, and the ms for which they are left
local function reserved()
  local left_ms = foreign_ms(MAX_LISTEN_MS, NOW)
  return left_ms > 0 and 1 or 0, left_ms
end

-- Settles grants that expired. The client of each one counts as dead, and its waiters are evicted.
-- But `client` is asking now and therefore alive: its waiters with a grant go to the front.
local function settle_missed_grants(client)
  local evicted = {}
  for _, member in ipairs(redis.pcall('ZRANGEBYSCORE', QUEUE, 0, 0, 'LIMIT', 0, BATCH)) do
    local kind, _, _, _, owner = parse(member)
    local of = client_of(member)
    if not evicted[of] and not (kind and end_of(LEASES, ids_of(owner))) then
      if of == client then
        redis.call('ZADD', QUEUE, front_place(), member)
      else
        evict(of)
        evicted[of] = true
      end
    end
  end
end

-- Returns whether this waiter cannot be served: see is_over. It also cannot if it needs more
-- permits than the total; it is then notified.
local function is_refused(member, all, alive)
  if is_over(member, alive) then return true end
  local kind, _, number, _, owner = parse(member)
  local refused = kind and all > 0 and #ids_of(owner) > all
  if refused then send(member, 'recheck', number) end
  return refused
end

-- Sets the free permits aside for a waiter that needs more than these, because foreign clients
-- would take them one by one. They expire like a grant.
local function set_aside(ids, free)
  local some = {}
  for i = 1, free do some[i] = ids[i] end
  draw(some, NOW + GRANT_MS)
end

-- Gives the `free` permits to the first `batch` waiters, and removes those that cannot be served.
-- → whether it reached a waiter that must wait, `me`, or the end; how many are still free
local function serve_batch(me, free, batch)
  local members = redis.call('ZRANGEBYSCORE', QUEUE, '(0', '+inf', 'WITHSCORES', 'LIMIT', 0, batch)
  if #members == 0 then return true, free end
  local alive, foreign = listening(members, 1)
  local all, gone, stopped = all_permits(), {}, false
  for i = 1, #members, 2 do
    local member = members[i]
    stopped = member == me or is_newer(member)
    if not stopped and is_refused(member, all, alive) then
      gone[#gone + 1] = member
    elseif not stopped then
      local _, client, number, ttl_ms, owner = parse(member)
      local ids = ids_of(owner)
      local lacks = #ids > 1 and lacking(ids) or ids
      stopped = #lacks > free
      if not stopped then
        draw(ids, NOW + GRANT_MS)
        announce_grant(member, place_of(tonumber(members[i + 1])), client, number, ttl_ms)
        free = free - #lacks
      elseif free > 0 and (foreign > 0 or is_foreign()) then
        set_aside(lacks, free)
        free = 0
      end
    end
    if stopped then break end
  end
  if #gone > 0 then redis.call('ZREM', QUEUE, unpack(gone)) end
  return stopped, free
end

-- Notifies the first waiter, which then asks again.
local function notify_first()
  local all = all_permits()
  local function over(member, alive) return is_refused(member, all, alive) end
  notify(first_alive(over), 'recheck')
end

-- Gives the free permits except `kept` to the first waiters. Stops before the member `me`, which
-- can take them itself. If some are kept, it also removes dead waiters before the new first one.
-- → the first remaining waiter or nil; whether there may be others to serve, behind dead ones that
-- the next script removes
local function serve(me, kept)
  local before, free_before = first_in_line(), FREE
  if not before then return nil, false end
  local free, stopped = (FREE or 0) - kept, false
  local function goes_on() return not stopped and (free > 0 or kept > 0) end
  if not goes_on() then return before, false end
  local size = math.max(1, math.min(free, BATCH))
  for _ = 0, MAX_BATCHES do
    if not goes_on() then break end
    stopped, free = serve_batch(me, free, size)
    size = BATCH
  end
  if kept == 0 and FREE ~= free_before then note_ours(NOW) end
  local first_left = first_in_line()
  if first_left ~= before and first_left ~= me and is_foreign() then notify_first() end
  return first_left, first_left ~= nil and goes_on()
end
