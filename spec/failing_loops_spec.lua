-- Event loops that fail: each function of the contract raises an error or does nothing, in its
-- first call, its second, …, or in all from then on. Callers return, and nothing is left: no lock,
-- no waiter, no connection, no descriptor.

local holdfast = require "holdfast"
local loops = require "spec.support.loops"
local process = require "spec.support.process"
local redis = require "spec.support.redis"

local MOST = 2 -- how many calls are each the first to fail
local CALLERS = 2
local PATIENCE = 30 -- seconds in which each call has to return

local function broken() error("broken", 0) end

-- act(plain, stay) replaces a call: `plain()` does what the call would do, `stay()` returns when
-- the test is over. `once`: a loop in which each call failed would not run anything. `timed`:
-- callers return only if waits for signals end in time.
local FAULTS = {
  ["a spawn that raises an error"] = { call = "spawn", act = broken },
  ["a spawn that does nothing"] = { call = "spawn", act = function() end, timed = true },
  ["a watch that raises an error"] = { call = "watch", act = broken },
  ["a wait for the descriptor that raises an error"] = { call = "watch.wait", act = broken },
  ["a wait for the descriptor that returns at once"] = {
    call = "watch.wait", act = function() end, once = true,
  },
  ["a wait for the descriptor that does not return"] = {
    call = "watch.wait", act = function(_, stay) stay() end, timed = true,
  },
  ["a close that raises an error"] = { call = "watch.close", act = function(plain)
    plain()
    broken()
  end },
  ["a signal that raises an error"] = { call = "signal", act = broken },
  ["a wait for a signal that raises an error"] = { call = "signal.wait", act = broken },
  ["a fire that raises an error"] = { call = "signal.fire", act = function(plain)
    plain()
    broken()
  end },
}

-- Returns a signal whose waits end in time: some loops have no timers.
local function timed_signal(loop)
  local signal = { fired = false }
  function signal:wait(seconds)
    local till = process.now() + seconds
    while not self.fired and process.now() < till do loop.sleep(0.01) end
    return self.fired
  end
  function signal:fire() self.fired = true end
  return signal
end

-- Returns the functions of the loop: holdfast's own or the user's.
local function contract_of(loop)
  local driver = loop.driver
  return type(driver) == "string" and require("holdfast.loop." .. driver) or driver
end

-- Puts the fault into the nth call of its function, and into all later calls if `lasts`.
-- → the loop, { calls = how many such calls there were, over = to be set after the test }
local function failing(loop, fault, nth, lasts)
  local plain, count = contract_of(loop), { calls = 0, over = false }
  local function stay() while not count.over do loop.sleep(0.01) end end
  local function wrap(name, fn)
    if name ~= fault.call then return fn end
    return function(...)
      count.calls = count.calls + 1
      if count.calls < nth or count.calls > nth and not lasts then return fn(...) end
      local args, size = { ... }, select("#", ...)
      return fault.act(function() return fn((table.unpack or unpack)(args, 1, size)) end, stay)
    end
  end
  local function wrap_object(name, object, methods)
    local made = {}
    for _, method in ipairs(methods) do
      made[method] = wrap(name .. "." .. method, function(_, ...)
        return object[method](object, ...)
      end)
    end
    return made
  end
  return {
    name = plain.name, check = plain.check, spawn = wrap("spawn", plain.spawn),
    watch = wrap("watch", function(fd)
      return wrap_object("watch", plain.watch(fd), { "wait", "close" })
    end),
    signal = wrap("signal", function()
      local signal = fault.timed and timed_signal(loop) or plain.signal()
      return wrap_object("signal", signal, { "wait", "fire" })
    end),
  }, count
end

local function quietly(fn)
  local stderr = io.stderr
  rawset(io, "stderr", { write = function() end })
  local fine, message = pcall(fn)
  rawset(io, "stderr", stderr)
  assert(fine, message)
end

for _, loop in ipairs(loops) do
  describe("under a failing " .. loop.name, function()
    local server, failures

    before_each(function() server, failures = redis.start(), {} end)
    after_each(function() server:stop() end)

    -- Starts callers of one lock, then closes their client.
    local function attempt(what, fault, nth, lasts)
      local driver, count = failing(loop, fault, nth, lasts)
      local client = holdfast.new { url = server:url(), driver = driver, command_timeout = 2,
        fencing = false }
      local returned, key = 0, ("%s, %d%s"):format(what, nth, lasts and " and later" or "")
      local function call(fn)
        loop.spawn(function()
          pcall(fn)
          returned = returned + 1
        end)
      end
      local lock = client:lock(key)
      for _ = 1, CALLERS / 2 do
        call(function() if lock:acquire(2) then lock:release() end end)
        call(function() client:with_lock(key, { wait = 2 }, function() end) end)
      end
      if not loop.wait_until(function() return returned == CALLERS end, PATIENCE) then
        failures[#failures + 1] = ("%s: %d of %d callers have returned"):format(key, returned,
          CALLERS)
      end
      count.over = true
      pcall(client.close, client)
    end

    local function attempt_all()
      for what, fault in pairs(FAULTS) do
        for nth = 1, 2 * MOST do
          local lasts = nth > MOST
          if not (lasts and fault.once) then
            loop.spawn(function() attempt(what, fault, lasts and nth - MOST or nth, lasts) end)
          end
        end
      end
    end

    it("every call returns and no lock is left, whichever call of the loop fails", function()
      quietly(function() loop.run(attempt_all) end)
      assert.same({}, failures)
      local function left() return server:cli("KEYS", "*, *") end
      process.wait_until(function() return #left() == 0 end, 10)
      assert.same({}, left())
    end)

    -- Among these waits are those of the calls that a schedule makes under its lock.
    it("a run of a schedule leaves no lock, whichever wait for a signal raises an error", function()
      local held, calls = {}, 0
      local function is_free(key) return server:cli("EXISTS", key) == 0 end
      local function run(nth)
        local driver, count = failing(loop, FAULTS["a wait for a signal that raises an error"], nth)
        local client = holdfast.new { url = server:url(), driver = driver }
        pcall(client.once, client, "job " .. nth, 60, function() end)
        calls = count.calls
        if not loop.wait_until(function() return is_free("job " .. nth) end, 5) then
          held[#held + 1] = nth
        end
        pcall(client.close, client)
      end
      quietly(function()
        loop.run(function()
          local nth = 0
          repeat
            nth = nth + 1
            run(nth)
          until calls < nth
        end)
      end)
      assert.same({}, held)
    end)
  end)
end

-- The task looks once a second for callers that were woken but have not continued for a second.
for _, loop in ipairs { loops[1] } do
  describe("in an event loop that resumes callers late", function()
    local server
    before_each(function() server = redis.start() end)
    after_each(function() server:stop() end)

    it("gives each call its full timeout", function()
      local late = 0
      local driver = contract_of(loop)
      local slow = setmetatable({ signal = function()
        local signal = driver.signal()
        return {
          fire = function() signal:fire() end,
          wait = function(_, seconds)
            local fired = signal:wait(seconds)
            if fired then loop.sleep(late) end
            return fired
          end,
        }
      end }, { __index = driver })
      loop.run(function()
        local client = holdfast.new { url = server:url(), driver = slow }
        local lock = client:lock("k")
        assert(client:ping())
        late = 1.5
        assert(lock:acquire())
        loop.sleep(1.2)
        assert(lock:release())
        client:close()
      end)
    end)
  end)
end
