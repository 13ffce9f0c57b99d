-- Event loops: the task that a client runs in the background renews locks, and survives errors.

local fails = require "spec.support.fails"
local looped = require "spec.support.looped"
local loops = require "spec.support.loops"
local process = require "spec.support.process"

local median, quietly = looped.median, looped.quietly

for _, loop in ipairs(loops) do
  describe("the event loop " .. loop.name, function()
    local world, server, client = looped.new(loop), nil, nil
    local new, breaking, eventually = world.client, world.breaking, world.eventually
    local function it_runs(name, fn) it(name, function() loop.run(fn) end) end
    local run = loop.run
    local wait_until = loop.wait_until

    before_each(function() server, client = world.open() end)
    after_each(world.close)

    it("either refuses an acquire or renews its lock when no descriptors are left", function()
      local child = process.lua { descriptors = 100, args = { loop.name, server:url() }, code = [[
        local loop
        for _, each in ipairs(require "spec.support.loops") do
          if each.name == arg[1] then loop = each end
        end
        local function attempt(free)
          local client = require("holdfast").new { url = arg[2], driver = loop.driver, lease = 2 }
          local lock, files = client:lock("a"), {}
          repeat
            local file = io.open("/dev/null")
            files[#files + 1] = file
          until not file
          for _ = 1, free do table.remove(files):close() end
          local acquired, _, code = lock:acquire(5)
          for _, file in ipairs(files) do file:close() end
          if acquired then
            loop.wait_until(function() return client:stats().renewals > 0 or lock:lost() end)
            code = lock:is_held()
          end
          client:close()
          return code
        end
        loop.run(function()
          loop.sleep(0.01) -- the loop has its own descriptors
          for free = 0, 4 do io.write(tostring(attempt(free)), " ") end
        end)
      ]] }
      assert.equal("exit", (child:wait(60)))
      local output = child:output()
      assert.matches("^unreachable ", output)
      assert.equal("", (output:gsub("true ", ""):gsub("unreachable ", "")))
      assert.matches("true $", output)
    end)

    it("still renews locks after its background task has raised an error", function()
      local broken = false
      local one = new { lease = 2, driver = breaking(function()
        local was = broken
        broken = false
        return was
      end) }
      local errors = quietly(function()
        run(function()
          local lock = assert(one:lock("a"):acquire())
          broken = true
          eventually(function() return not broken end)
          local before = one:stats().renewals
          wait_until(function() return one:stats().renewals > before + 1 or lock:lost() end)
          assert.is_true(lock:is_held() and lock:release())
          one:close()
        end)
      end)
      assert.same({ "holdfast: broken\n" }, errors)
    end)

    it("fails a call if every new background task raises an error", function()
      local tasks = 0
      local one = new { lease = 2, driver = breaking(function()
        tasks = tasks + 1
        return "broken " .. tasks
      end) }
      local errors = quietly(function()
        run(function()
          assert.matches("cannot start a task: broken 3",
            fails("unreachable", one:lock("a"):acquire(20)), 1, true)
        end)
        one:close()
      end)
      for i = 1, 3 do assert.equal(("holdfast: broken %d\n"):format(i), errors[i]) end
      assert.is_true(tasks == 3 and #errors < 10)
    end)

    it("ends soon after the last release", function()
      local late = {}
      for i = 1, 3 do
        local released_at
        run(function()
          assert(client:with_lock("a", function()
            loop.sleep(0.6)
            return true
          end))
          released_at = process.now()
        end)
        late[i] = process.now() - released_at
      end
      assert.is_true(median(late) < 0.4, median(late))
    end)

    it_runs("renews locks over the same connection as its calls", function()
      local lock = assert(client:lock("a", { lease = 1, watchdog = true }):acquire(20))
      eventually(function() return client:stats().renewals > 0 end)
      assert.equal(1, client:stats().connections)
      assert.is_true(lock:release())
    end)
  end)
end
