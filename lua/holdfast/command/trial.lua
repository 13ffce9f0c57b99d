-- Acquires and releases a lock of each kind, for `holdfast doctor --try`.

local core = require "holdfast.core"
local driver = require "holdfast.driver"

local trial = {}

local OPTIONS = { token_ttl = 60 } -- seconds until the server deletes the fencing counter

-- → true | nil, message
local function lock_once(lock)
  local ok, message = lock:acquire(0)
  if not ok then return nil, message end
  return lock:release()
end

-- → true | nil, message
local function lock_read_and_write(read_write_lock)
  local ok, message = lock_once(read_write_lock:read())
  if not ok then return nil, message end
  return lock_once(read_write_lock:write())
end

-- → true | nil, message
local function set_and_delete(object)
  local ok, message = object:set(1)
  if ok == nil then return nil, message end
  ok, message = object:delete()
  return ok ~= nil or nil, message
end

-- Acquires and releases a permit, then deletes the key of the number of permits, which has no TTL.
-- → true | nil, message
local function acquire_permit(client, key)
  local semaphore = client:semaphore(key, { permits = 1, token_ttl = OPTIONS.token_ttl })
  local permit, message = semaphore:acquire(1, 0)
  if not permit then return nil, message end
  local ok, why = permit:release()
  driver.command(client, { "DEL", key })
  return ok, why
end

-- a kind's name in `holdfast acl` -> function(client, key) → true | nil, message. Fences are not
-- tried, because a fence's keys belong to the resource's data, which may be on another server.
local TRIES = {
  lock = function(client, key) return lock_once(client:lock(key, OPTIONS)) end,
  mutex = function(client, key) return lock_once(client:mutex(key, OPTIONS)) end,
  fair = function(client, key) return lock_once(client:fair_lock(key, OPTIONS)) end,
  read_write = function(client, key)
    return lock_read_and_write(client:read_write_lock(key, OPTIONS))
  end,
  semaphore = acquire_permit,
  latch = function(client, key) return set_and_delete(client:latch(key)) end,
  plain_semaphore = function(client, key) return set_and_delete(client:plain_semaphore(key)) end,
}

-- Tries the kinds in `setup.kinds` on this client's server. Reports problems as a check does: see
-- checks.lua.
function trial.run(client, setup, add_problem)
  for _, kind in ipairs(setup.kinds) do
    local try = TRIES[kind[1]]
    local key = ("%sholdfast_doctor:%s:%s"):format(setup.prefix, kind[1], core.client.uuid(client))
    local ok, message = true, nil
    if try then ok, message = try(client, key) end
    if not ok then add_problem(message) end
  end
  return true
end

return trial
