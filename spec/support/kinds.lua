-- Two functions for each kind of lock, for any client:
--
--   hold(client, key)         excludes others → a function that lets them in
--   within(client, key, fn)   waits, and calls fn while holding the lock

local kinds = {}

local PATIENCE = 30

local function add(name, hold, within)
  assert(not kinds[name], name)
  kinds[#kinds + 1] = { name = name, hold = hold, within = within }
  kinds[name] = kinds[#kinds]
end

local function add_lock(name, make)
  local function hold(client, key)
    local lock = assert(make(client, key):acquire(PATIENCE))
    return function() assert(lock:release()) end
  end
  add(name, hold, function(client, key, fn)
    local lock = assert(make(client, key):acquire(PATIENCE))
    fn()
    assert(lock:release())
  end)
end

add_lock("lock", function(client, key) return client:lock(key) end)
add_lock("mutex", function(client, key) return client:mutex(key) end)
add_lock("fair lock", function(client, key) return client:fair_lock(key) end)
add_lock("write lock", function(client, key) return client:read_write_lock(key):write() end)

-- A writer keeps the readers out.
add("read lock", kinds["write lock"].hold, function(client, key, fn)
  local lock = assert(client:read_write_lock(key):read():acquire(PATIENCE))
  fn()
  assert(lock:release())
end)

add("semaphore", function(client, key)
  local permit = assert(client:semaphore(key, { permits = 2 }):acquire(2, PATIENCE))
  return function() assert(permit:release()) end
end, function(client, key, fn)
  assert(client:semaphore(key, { permits = 2 }):with_permit({ wait = PATIENCE }, function()
    fn()
    return true
  end))
end)

add("plain semaphore", function(client, key)
  local plain_semaphore = client:plain_semaphore(key)
  assert(plain_semaphore:set(2) ~= nil)
  assert(plain_semaphore:acquire(2, PATIENCE))
  return function() assert(plain_semaphore:release(2)) end
end, function(client, key, fn)
  assert(client:plain_semaphore(key):with_permit({ wait = PATIENCE }, function()
    fn()
    return true
  end))
end)

add("latch", function(client, key)
  local latch = client:latch(key)
  assert(latch:set(2))
  return function() assert(latch:count_down(2)) end
end, function(client, key, fn)
  assert(client:latch(key):wait(PATIENCE))
  fn()
end)

add("leader", kinds.lock.hold, function(client, key, fn)
  assert(client:lead(key, { once = true }, function(term)
    assert(term:is_leader())
    fn()
    return true
  end))
end)

return kinds
