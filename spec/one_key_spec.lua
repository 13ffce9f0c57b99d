-- Each kind of lock on a key that another kind uses, as docs/reference/api/errors.md describes.

local world = require("spec.support.world").new()

before_each(world.open)
after_each(world.close)

-- ---- each kind: hold(client) → release; try(client) → nil, message, code, or something else ----

local KEY = "k"
local kinds, order = {}, {}

local function add(name, hold, try)
  kinds[name], order[#order + 1] = { hold = hold, try = try }, name
end

local function add_lock(name, make)
  add(name, function(client)
    local lock = assert(make(client):acquire(0))
    return function() assert(lock:release()) end
  end, function(client) return make(client):acquire(0) end)
end

add_lock("lock", function(client) return client:lock(KEY) end)
add_lock("fair lock", function(client) return client:fair_lock(KEY) end)
add_lock("mutex", function(client) return client:mutex(KEY) end)
add_lock("read lock", function(client) return client:read_write_lock(KEY):read() end)
add_lock("write lock", function(client) return client:read_write_lock(KEY):write() end)
add_lock("locks at once", function(client) return client:multi_lock { "other", KEY } end)

local function run_twice() error "it ran" end

add("guard", function(client)
  local run = coroutine.wrap(function()
    assert(client:idempotent(KEY, { delete_key = true }, coroutine.yield))
  end)
  run()
  return run
end, function(client) return client:idempotent(KEY, run_twice) end)

add("record", function(client)
  assert(client:idempotent(KEY, { expire = 60 }, function() return true end))
  return function() world.cli("DEL", KEY) end
end, function(client) return client:idempotent(KEY, run_twice) end)

add("semaphore", function(client)
  local permit = assert(client:semaphore(KEY, { permits = 1 }):acquire(1, 0))
  return function()
    assert(permit:release())
    world.cli("DEL", KEY)
  end
end, function(client) return client:semaphore(KEY, { permits = 1 }):acquire(1, 0) end)

add("plain semaphore", function(client)
  local plain = client:plain_semaphore(KEY)
  assert(plain:set(1)) assert(plain:acquire(1, 0))
  return function() assert(plain:delete()) end
end, function(client) return client:plain_semaphore(KEY):acquire(1, 0) end)

add("latch", function(client)
  local latch = client:latch(KEY)
  assert(latch:set(1))
  return function() assert(latch:count_down()) end
end, function(client) return client:latch(KEY):wait(0) end)

-- ---- what one gets where the other has the key ----

-- What the kinds are on the server: the rows and columns of the table in errors.md.
local LAYOUT = {
  ["lock"] = "lock", ["fair lock"] = "lock", ["locks at once"] = "lock", ["mutex"] = "mutex",
  ["read lock"] = "read/write lock", ["write lock"] = "read/write lock",
  ["guard"] = "guard", ["record"] = "guard",
  ["semaphore"] = "number", ["plain semaphore"] = "number", ["latch"] = "number",
}

local SAME = {
  ["lock"] = "busy", ["mutex"] = "busy", ["read/write lock"] = "busy", ["guard"] = "duplicate",
}

local function expected(holder, asker)
  local has, asks = LAYOUT[holder], LAYOUT[asker]
  if has == asks then return SAME[has] end
  return has == "number" and asks == "mutex" and "busy" or "conflict"
end

-- Readers share their lock, and the server cannot distinguish kinds that are numbers.
local function is_shared(holder, asker)
  return holder == "read lock" and asker == "read lock"
    or LAYOUT[holder] == "number" and LAYOUT[asker] == "number"
end

local function check_result(holder, asker)
  local release = kinds[holder].hold(world.client())
  local before = world.cli("DUMP", KEY)
  local result, message, code = kinds[asker].try(world.client())
  local case = ("%s: a %s: %s"):format(holder, asker, message)
  assert.same({ code = expected(holder, asker) }, { result = result, code = code }, case)
  assert.equal(before, world.cli("DUMP", KEY), case)
  release()
end

for _, holder in ipairs(order) do
  it(("on a key held as a %s each other kind gets busy or conflict as specified"):format(holder), function()
    for _, asker in ipairs(order) do
      if not is_shared(holder, asker) then check_result(holder, asker) end
    end
  end)
end

-- ---- a caller beside itself, waits, and which server reports it ----

local function fails(code, message, ...)
  local result, got_message, got = ...
  assert.same({ code = code }, { result = result, code = got }, got_message)
  assert.matches(message, got_message, 1, true)
end

describe("an idempotent run and a lock of one caller on the same key", function()
  it("conflict at once when the run is begun while the lock is held", function()
    local client = world.client()
    for _, with in ipairs { "with_lock", "with_fair_lock", "with_read_lock", "with_write_lock" } do
      assert(client[with](client, KEY, function()
        fails("conflict", "lock already uses the key", client:idempotent(KEY, run_twice))
        fails("conflict", "lock already uses the key", client:idempotent(KEY, { wait = 20 }, run_twice))
        return true
      end))
    end
  end)

  it("conflict at once when the lock is acquired inside the run, or while the run's record exists", function()
    local client = world.client()
    local function is_guards()
      for _, with in ipairs { "with_lock", "with_fair_lock" } do
        fails("conflict", "a guard (idempotent) already uses the key",
          client[with](client, KEY, { wait = 20 }, run_twice))
      end
      fails("conflict", "lock of another kind",
        client:with_write_lock(KEY, { wait = 20 }, run_twice))
      fails("conflict", "a guard (idempotent) already uses the key",
        client:multi_lock({ "other", KEY }):acquire(20))
    end
    assert(client:idempotent(KEY, { expire = 60, fingerprint = "a" }, function()
      is_guards()
      return true
    end))
    is_guards()
    world.cli("DEL", KEY)
  end)
end)
