-- Test runners and reloaders clear package.loaded and require holdfast again.

local world = require("spec.support.world").new()

before_each(world.open)
after_each(world.close)

local function load_anew()
  for name in pairs(package.loaded) do
    if name:match "^holdfast" then package.loaded[name] = nil end
  end
  return require "holdfast"
end

describe("after package.loaded was cleared", function()
  local first, second, client, other, loaded

  before_each(function()
    loaded = {}
    for name, module in pairs(package.loaded) do
      if name:match "^holdfast" then loaded[name] = module end
    end
    first = require "holdfast"
    client = first.new(world.server:url())
  end)

  after_each(function()
    client:close()
    other:close()
    for name, module in pairs(loaded) do package.loaded[name] = module end
  end)

  local function reload()
    second = load_anew()
    assert.are_not.equal(first, second)
    other = second.new(world.server:url())
  end

  it("old clients and locks still hold, wait and release beside new ones", function()
    local lock, pool = client:lock("k"), client:semaphore("pool", { permits = 1 })
    assert(lock:acquire(1))
    reload()
    assert.is_true(lock:is_held())
    assert.equal("busy", select(3, other:lock("k"):try_acquire()))
    assert(lock:release())
    local permit = assert(pool:acquire(1))
    assert(permit:release())
    world.cli("DEL", "pool")
    assert.equal(1, client:with_lock("x", function() return 1 end))
    assert.equal(2, other:with_lock("x", function() return 2 end))
    assert(client:one_by_one():execute("type", 1, function() return true end))
    assert.matches("^holdfast.lock: k", tostring(lock))
    assert.equal("holdfast.lock", getmetatable(lock))
    assert.equal(1, require("holdfast.core").states())
    collectgarbage()
  end)

  it("any call reports a loss of an old lock", function()
    local reported
    local function on_lost(_, reason) reported = reason end
    local lock = client:lock("k", { watchdog = false, on_lost = on_lost })
    assert(lock:acquire(1))
    reload()
    world.cli("DEL", "k")
    assert.equal("lost", select(3, lock:check()))
    other:lock("z"):is_held()
    assert.equal("deleted", reported)
  end)

  it("any call reports an event of an old client", function()
    local event
    local seen = first.new { url = world.server:url(), on_event = function(e) event = e.event end }
    reload()
    assert(seen:lock("e"):acquire(1))
    event = nil
    world.cli("DEL", "e")
    seen:lock("e"):check()
    other:lock("z"):is_held()
    assert.is_string(event)
    seen:close()
  end)
end)
