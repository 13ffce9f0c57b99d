-- Bounds for holders that hang and for waiters: max_hold and max_waiters.

local process = require "spec.support.process"
local world = require("spec.support.world").new()

local SHORT = 0.25 -- seconds
local PATIENCE = 20

before_each(world.open)
after_each(world.close)

-- On a busy machine, the reply may come after so short a lease: then this asks again.
-- → what `ask` returns
local function insist(ask)
  local result
  repeat result = { ask() } until result[1] or result[3] ~= "lost" or result[4]
  return result
end

local function take(lock)
  local result = insist(function() return lock:acquire(PATIENCE) end)
  return assert(result[1], result[2])
end

local function await_loss(handle)
  return process.wait_until(function() return handle:lost() end, PATIENCE)
end

-- ---- max_hold ----

describe("max_hold", function()
  it("ends a renewed hold of every kind, and reports the end as a loss", function()
    local client, losses, events = world.client(), {}, {}
    local opts = {
      max_hold = SHORT,
      on_lost = function(_, reason) losses[#losses + 1] = reason end,
      on_event = function(event) events[#events + 1] = event.event == "lost" and event.code or nil end,
    }
    local both = client:read_write_lock("rw", opts)
    local held = {
      client:lock("k", opts), client:mutex("m", opts), client:fair_lock("f", opts), both:write(),
    }
    for _, lock in ipairs(held) do take(lock) end
    local semaphore = client:semaphore("s", {
      permits = 2, max_hold = SHORT, on_lost = opts.on_lost, on_event = opts.on_event,
    })
    held[#held + 1] = assert(insist(function() return semaphore:acquire() end)[1])
    for _, one in ipairs(held) do
      assert.is_true(one:remaining() <= SHORT)
      assert.equal("max_hold", await_loss(one))
      assert.is_false(one:is_held())
    end
    assert.same({ "max_hold", "max_hold", "max_hold", "max_hold", "max_hold" }, losses)
    assert.same(losses, events)
    assert.equal(5, client:stats().classes[""].lost.max_hold)
    local released, message, code = held[1]:release()
    assert.same({ nil, "lost" }, { released, code })
    assert.matches("it was held for as long as max_hold allows", message)
    world.cli("DEL", "s")
  end)
end)

-- ---- max_waiters ----

local WAITER = [[
local lock = require("holdfast").new(arg[1]):lock("k")
assert(lock:acquire(math.huge)):release()
]]

local function waiters() return world.cli("ZCOUNT", "holdfast_queue:{k}", "(0", "+inf") end

local function add_waiter()
  local before = waiters()
  local child = world.program { code = WAITER, args = { world.server:url() } }
  assert(process.wait_until(function() return waiters() == before + 1 end, PATIENCE))
  return child
end

describe("max_waiters", function()
  it("makes an acquire fail at once if the queue is full, with the queue's length in the message", function()
    local client = world.client()
    local held = assert(client:lock("k"):acquire())
    local first, second = add_waiter(), add_waiter()
    local shed = world.client():lock("k", { max_waiters = 2, wait = PATIENCE })
    local acquired, message, code = shed:acquire()
    assert.same({ nil, "busy" }, { acquired, code })
    assert.matches('cannot acquire "k" on .*: 2 already waiting in line, and max_waiters is 2; try again later', message)
    assert.equal(2, waiters())
    local patient = world.client():lock("k", { max_waiters = 3, wait = SHORT })
    message = select(2, patient:acquire())
    assert.matches("held by", message) -- it was allowed to wait
    assert.is_true(held:release())
    for _, child in ipairs { first, second } do assert.same({ "exit", 0 }, { child:wait(PATIENCE) }) end
    assert(shed:acquire()):release()
  end)

  it("of 0 makes an acquire fail as busy without waiting", function()
    local held = assert(world.client():lock("k"):acquire())
    local client = world.client()
    local trips = client:ping() and client:stats().round_trips
    assert.equal("busy", (select(3, client:lock("k", { max_waiters = 0 }):acquire(PATIENCE))))
    assert.equal(1, client:stats().round_trips - trips)
    held:release()
  end)
end)
