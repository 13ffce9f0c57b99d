-- Releases whose reply is not awaited: async_release = true.

local loops = require "spec.support.loops"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local world = require("spec.support.world").new()

local ASYNC = { async_release = true }

before_each(world.open)
after_each(world.close)

describe("an async release", function()
  it("returns while the server hangs, and is carried out once the server responds", function()
    local lock = assert(world.client():lock("k", ASYNC):acquire())
    world.server:kill("STOP")
    local from = process.now()
    assert.is_true(lock:release())
    assert.is_true(process.now() - from < 2) -- not after 3 s
    assert.is_false(lock:is_held())
    world.server:kill("CONT")
    assert.is_true(world.is_free("k"))
  end)

  it("is carried out before the owner's next acquire, even one that may not wait", function()
    local client = world.client()
    for _, make in ipairs { client.lock, client.mutex } do
      local lock = make(client, "k", ASYNC)
      for _ = 1, 300 do
        assert(lock:try_acquire())
        assert.is_true(lock:release())
      end
    end
    assert.equal(0, client:stats().failures.busy)
  end)

  it("waits for the server if the watchdog is stopped", function()
    local client = world.client()
    local lock = assert(client:lock("k", ASYNC):acquire())
    client:watchdog():stop()
    assert.is_true(lock:release())
    assert.equal(1, client:stats().releases)
  end)
end)

describe("a loss found by an async release", function()
  local losses, events, client

  before_each(function()
    losses, events = {}, {}
    client = world.client { async_release = true, on_event = function(event)
      events[#events + 1] = event
    end }
  end)

  local function on_lost(_, reason) losses[#losses + 1] = reason end

  local function lost_event()
    for _, event in ipairs(events) do
      if event.event == "lost" then return event end
    end
  end

  it("is reported to on_lost, on_event, lost() and the counters, not by the release itself", function()
    local lock = assert(client:lock("k", { on_lost = on_lost }):acquire())
    world.cli("DEL", "k")
    assert.is_true(lock:release())
    assert.is_true(process.wait_until(function() return client:stats().losses == 1 end, 20))
    lock:is_held()
    assert.same({ "deleted" }, losses)
    assert.equal("deleted", lost_event().code)
    assert.same({ "deleted", false }, { lock:lost(), lock:is_held() })
  end)

  it("does not change what with_lock returns", function()
    assert.equal("done", client:with_lock("k", { on_lost = on_lost }, function()
      world.cli("DEL", "k")
      return "done"
    end))
    assert.is_true(process.wait_until(function() return client:stats().losses == 1 end, 20))
    local result, _, code = client:with_lock("k", { async_release = false }, function()
      world.cli("DEL", "k")
      return "done"
    end)
    assert.same({ nil, "lost" }, { result, code })
  end)
end)

describe("the handle of an async release", function()
  local losses, received

  before_each(function() losses, received = {}, {} end)

  local function with_on_lost()
    return {
      on_lost = function(lock, reason) losses[#losses + 1] = lock:key() .. " " .. reason end,
    }
  end

  local function with_on_event()
    return { on_event = function(event) received[#received + 1] = event.event end }
  end

  local function with_both()
    return { on_lost = with_on_lost().on_lost, on_event = with_on_event().on_event }
  end

  -- Collects what can be collected. → whether nothing is left in the table
  local function are_collected(handles)
    collectgarbage() collectgarbage()
    return next(handles) == nil
  end

  -- Leaves the handle and its callbacks to holdfast alone, and collects what can be collected
  -- before the server answers.
  local function leave(client, callbacks, fn)
    client:with_lock("k", callbacks(), function()
      fn()
      world.server:kill("STOP")
    end)
    collectgarbage() collectgarbage()
    world.server:kill("CONT")
  end

  local function lose() world.cli("DEL", "k") end

  local function reports(client, list, count)
    return process.wait_until(function()
      client:stats()
      return #list == count
    end, 20)
  end

  local function nothing() end

  for what, case in pairs {
    ["on_event has received the release"] = { with_on_event, nothing, { "acquired", "released" } },
    ["on_event has received a loss"] = { with_on_event, lose, { "acquired", "lost" } },
    ["on_lost has been called"] = { with_on_lost, lose, { "k deleted" } },
  } do
    it("is not collected before its " .. what, function()
      local client, list = world.client(ASYNC), case[1] == with_on_lost and losses or received
      leave(client, case[1], case[2])
      assert.is_true(reports(client, list, #case[3]))
      assert.same(case[3], list)
    end)
  end

  it("is collected once all of its events have been delivered", function()
    local client, handles = world.client(ASYNC), setmetatable({}, { __mode = "k" })
    local function keep(lock) handles[lock] = true end
    for i = 1, 30 do client:with_lock("k" .. i, with_both(), keep) end
    assert.is_true(process.wait_until(function()
      client:stats()
      return are_collected(handles)
    end, 20))
    assert.same({ 60, {} }, { #received, losses })
  end)

  -- A separate program, because the events of other locks let go of handles, too.
  it("is collected after the release even if it has an on_lost", function()
    local child = world.program { args = { world.server:url() }, code = [[
      local process = require "spec.support.process"
      local client = require("holdfast").new { url = arg[1], async_release = true }
      local handles = setmetatable({}, { __mode = "k" })
      for i = 1, 30 do
        client:with_lock("k" .. i, { on_lost = print }, function(lock) handles[lock] = true end)
      end
      print(process.wait_until(function()
        client:stats()
        collectgarbage() collectgarbage()
        return next(handles) == nil
      end, 20))
    ]] }
    child:wait(60)
    assert.equal("true\n", child:output())
  end)

  it("is collected together with its client when nothing else refers to the client", function()
    do
      local client = holdfast.new { url = world.server:url(), async_release = true }
      client:with_lock("k", with_on_event(), function() end)
    end
    local other = world.client() -- without a connection
    local function is_connected() return world.cli("CLIENT", "LIST"):find "name=holdfast" end
    assert.is_truthy(is_connected())
    assert.is_true(process.wait_until(function()
      other:stats()
      collectgarbage() collectgarbage()
      return not is_connected()
    end, 20))
    assert.same({ "acquired", "released" }, received)
  end)

  for _, loop in ipairs(loops) do
    it("stays alive until its events are delivered, then is collected, under " .. loop.name, function()
      local client = world.client { driver = loop.driver, async_release = true }
      local handles = setmetatable({}, { __mode = "k" })
      loop.spawn(function()
        leave(client, with_both, lose)
        loop.wait_until(function() return #losses + #received == 3 end)
        assert.same({ { "k deleted" }, { "acquired", "lost" } }, { losses, received })
        client:with_lock("k", with_on_event(), function(lock) handles[lock] = true end)
        assert.is_true(loop.wait_until(function() return are_collected(handles) end))
        client:close()
      end)
      loop.run()
    end)
  end
end)

describe("the option async_release", function()
  it("is accepted in a quorum, whose locks can be acquired again at once", function()
    local servers = { world.server:url(), world.another():url(), world.another():url() }
    local client = holdfast.new { servers = servers, mode = "quorum", async_release = true }
    local lock = client:lock("k")
    for _ = 1, 20 do
      assert(lock:acquire(20))
      assert.is_true(lock:release())
    end
    client:close()
  end)
end)
