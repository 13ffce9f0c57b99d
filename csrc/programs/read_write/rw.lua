--#fragment
-- A read/write lock is stored as in Redisson: a hash with the field "mode" and each owner's count;
-- the owner of a write hold is <owner>:write. Each read hold has a key,
-- {lock}:<owner>:rwlock_timeout:<n>, which expires with its lease: a reader without such a key is
-- dead. The mode is "read" or "write"; or "drain:<ms>", while Redisson's readers are kept out until
-- that server time.
local MAX_KEYS = 100 -- maximum for one reader's holds; later holds share the last key
local MAX_SEARCHED = 100 -- with more readers left, a release does not look for the longest lease

local function is_write(owner)
  return owner:sub(-6) == ':write'
end

local function hold_key(lock, owner, n)
  local tag = lock:find('{', 1, true) and lock or '{' .. lock .. '}'
  return tag .. ':' .. owner .. ':rwlock_timeout:' .. n
end

-- Sets the lease of one hold. A full server accepts a new TTL for an existing key.
local function set_lease(key, ms)
  if redis.call('PEXPIRE', key, ms) == 0 then redis.call('SET', key, '1', 'PX', ms) end
end

-- → the longest remaining lease, in ms, of a reader's holds from `first` to `last`, or -2 if none
-- is alive
local function longest_lease(lock, owner, first, last)
  local longest = -2
  for n = first, math.min(last, MAX_KEYS) do
    longest = math.max(longest, redis.call('PTTL', hold_key(lock, owner, n)))
  end
  return longest
end

-- Returns whether the lock's TTL comes from this reader's longest lease.
local function determines_ttl(lock, owner, count)
  return longest_lease(lock, owner, 1, count) >= redis.call('PTTL', lock)
end

-- Deletes the lease keys of the holds numbered `remaining` + 1 to `count`.
local function delete_leases(lock, owner, remaining, count)
  if is_write(owner) then return end
  for n = remaining + 1, math.min(count, MAX_KEYS) do redis.call('DEL', hold_key(lock, owner, n)) end
end

-- Keeps the first `remaining` of `count` holds. The last one kept gets the longest lease of the
-- removed ones, because the owner relies on its longest lease.
local function trim_holds(lock, owner, remaining, count)
  if is_write(owner) then return end
  local key = hold_key(lock, owner, math.min(remaining, MAX_KEYS))
  local longest = longest_lease(lock, owner, remaining + 1, count)
  if longest > redis.call('PTTL', key) then set_lease(key, longest) end
  delete_leases(lock, owner, remaining, count)
end

-- Sets the hold count, which was `old_count`; hold number `count` is the new hold. Never shortens a
-- TTL: the command may arrive late, or the owner may know of fewer holds than there are. exists:
-- whether the lock exists, if known.
local function set_hold(lock, owner, count, ms, old_count, exists)
  local is_read, new_fields = not is_write(owner), 0
  if not is_read then
    new_fields = redis.call('HSET', lock, 'mode', 'write', owner, count)
  elseif exists or exists == nil and redis.call('EXISTS', lock) == 1 then
    redis.call('HSET', lock, owner, count)
  else
    new_fields = redis.call('HSET', lock, 'mode', 'read', owner, count)
  end
  if is_read and old_count > count then trim_holds(lock, owner, count, old_count) end
  if new_fields == 2 then
    -- See create_hold in hash.lua.
    if redis.pcall('PEXPIRE', lock, ms) ~= 1 then
      redis.call('DEL', lock)
      redis.call('PEXPIRE', lock, ms)
    end
  elseif redis.call('PTTL', lock) < tonumber(ms) then
    redis.call('PEXPIRE', lock, ms)
  end
  if not is_read then return end
  -- Written after the lock's TTL: servers before Redis 7 read the clock for each command, and the
  -- hold must not seem to end before the lock does.
  local key = hold_key(lock, owner, math.min(count, MAX_KEYS))
  local min_ms = old_count > 0 and redis.call('PTTL', key) or 0
  redis.call('SET', key, '1', 'PX', math.max(min_ms, tonumber(ms)))
end

-- Extends the remaining holds to at least this lease. Always writes, so that a later WAIT covers
-- it.
local function renew_holds(lock, owner, count, ms)
  ms = tonumber(ms)
  if not is_write(owner) then
    for n = 1, math.min(count, MAX_KEYS) do
      local key = hold_key(lock, owner, n)
      set_lease(key, math.max(redis.call('PTTL', key), ms))
    end
  end
  redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), ms))
end
