--#fragment
-- A semaphore's queue is like that of a lock (queue.lua), but several waiters may have an
-- unconfirmed grant, and a waiter that needs more permits than are free keeps those behind it
-- waiting.
local WAITER_KINDS = 'p'

--#include "queue/members.lua"
--#include "queue/settling.lua"
--#include "queue/runs.lua"
-- → the number of free permits that are left to foreign clients, and for how many ms
local function reserved()
  local left_ms = foreign_ms(MAX_LISTEN_MS, NOW)
  return left_ms > 0 and 1 or 0, left_ms
end

-- Settles grants that expired. A client that received one of them counts as dead, and its waiters
-- are evicted. But `client` is asking now and therefore alive: its waiters with a grant go to the
-- front.
local function settle_missed_grants(client)
  local evicted = {}
  for _, member in ipairs(redis.pcall('ZRANGEBYSCORE', QUEUE, 0, 0, 'LIMIT', 0, BATCH)) do
    local kind, _, _, _, owner = parse(member)
    local receiver = client_of(member)
    if not evicted[receiver] and not (kind and first_end_of(LEASES, ids_of(owner))) then
      if receiver == client then
        redis.call('ZADD', QUEUE, front_place(), member)
      else
        evict(receiver)
        evicted[receiver] = true
      end
    end
  end
end

-- Does the same as reject_unservable. Also rejects and notifies a waiter that needs more permits
-- than the total. → whether the waiter cannot be served
local function reject_waiter(member, total, alive)
  if reject_unservable(member, alive) then return true end
  local kind, _, number, _, owner = parse(member)
  local needs_too_many = kind and total > 0 and #ids_of(owner) > total
  if needs_too_many then send(member, 'recheck', number) end
  return needs_too_many
end

-- Sets the free permits aside for a waiter that needs more of them, because foreign clients would
-- take them one by one. These permits are reclaimed like those of an expired grant.
local function reserve_for_waiter(ids, free)
  local first_ids = {}
  for i = 1, free do first_ids[i] = ids[i] end
  take_permits(first_ids, NOW + GRANT_MS)
end

-- Gives the `free` permits to the first `batch` waiters, and removes those that cannot be served.
-- → whether it reached a waiter that must wait, `me`, or the end; how many are still free
local function serve_batch(me, free, batch)
  local members = redis.call('ZRANGEBYSCORE', QUEUE, '(0', '+inf', 'WITHSCORES', 'LIMIT', 0, batch)
  if #members == 0 then return true, free end
  local alive, foreign = listening(members, 1)
  local total, gone, stopped = total_permits(), {}, false
  for i = 1, #members, 2 do
    local member = members[i]
    stopped = member == me or is_newer(member)
    if not stopped and reject_waiter(member, total, alive) then
      gone[#gone + 1] = member
    elseif not stopped then
      local _, client, number, ttl_ms, owner = parse(member)
      local ids = ids_of(owner)
      local lacking_ids = #ids > 1 and lacking(ids) or ids
      stopped = #lacking_ids > free
      if not stopped then
        take_permits(ids, NOW + GRANT_MS)
        announce_grant(member, format_place(tonumber(members[i + 1])), client, number, ttl_ms)
        free = free - #lacking_ids
      elseif free > 0 and (foreign > 0 or redisson_has_permit()) then
        reserve_for_waiter(lacking_ids, free)
        free = 0
      end
    end
    if stopped then break end
  end
  if #gone > 0 then redis.call('ZREM', QUEUE, unpack(gone)) end
  return stopped, free
end

-- Notifies the first waiter that can be served, so that it asks again.
local function notify_first()
  local total = total_permits()
  local function reject(member, alive) return reject_waiter(member, total, alive) end
  notify(prune_to_first_alive(reject), 'recheck')
end

-- Gives the free permits except `reserve` to the first waiters. Stops before the member `me`, which
-- can take permits itself. If `reserve` > 0, also removes dead waiters ahead of the new first one.
-- → the first remaining waiter or nil; whether there may be others to serve, behind dead ones that
-- the next script removes
local function serve(me, reserve)
  local old_first, free_before = first_in_line(), FREE
  if not old_first then return nil, false end
  local free, stopped = (FREE or 0) - reserve, false
  local function must_continue() return not stopped and (free > 0 or reserve > 0) end
  if not must_continue() then return old_first, false end
  local size = math.max(1, math.min(free, BATCH))
  for _ = 0, MAX_BATCHES do
    if not must_continue() then break end
    stopped, free = serve_batch(me, free, size)
    size = BATCH
  end
  if reserve == 0 and FREE ~= free_before then begin_our_run(NOW) end
  local first_left = first_in_line()
  if first_left ~= old_first and first_left ~= me and redisson_has_permit() then notify_first() end
  return first_left, first_left ~= nil and must_continue()
end
