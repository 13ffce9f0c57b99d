-- client:once on a real server; some of these specs move its clock.

local driver = require "holdfast.driver"
local loops = require "spec.support.loops"
local process = require "spec.support.process"
local world = require("spec.support.world").new { clock = true }

local PERIOD = 60
local PATIENCE = 20

describe("client:once", function()
  local now -- seconds that the server's clock is ahead

  before_each(function()
    world.open()
    now = 0
  end)
  after_each(function()
    collectgarbage "restart"
    world.cli("CONFIG", "SET", "maxmemory", "0")
    world.cli("FLUSHALL")
    world.close()
  end)

  local function set_clock(seconds)
    now = seconds
    world.server:set_clock(seconds)
  end

  local function pass(seconds) set_clock(now + seconds) end

  local function nothing() end

  -- → what `fn` returned, or the code
  local function outcome(client, opts, fn)
    fn = fn or function() return "ran" end
    local result, message, code = client:once("job", PERIOD, opts or {}, fn)
    return result or code, message
  end

  -- Plays `fires` fires of a schedule that `hosts` hosts share. Their clocks are wrong by up to
  -- `off` seconds, and some hosts miss a fire. The fires are at whole minutes of the server's
  -- clock, where windows by the clock would begin.
  -- → the list of the runs, each with `fire`, and `from` and `to`, the server's time before and
  -- after the run
  local function simulate(hosts, fires, off)
    local clients, comes, runs = {}, {}, {}
    local first = PERIOD - os.time() % PERIOD
    for i = 1, 10 do clients[i] = world.client { name = "host" .. i } end
    for host = 1, hosts do
      local wrong = math.random(-off, off)
      for fire = 1, fires do
        local is_missing = host > 1 and math.random() < 0.3 -- any locale: numbers
        local time = first + fire * PERIOD + wrong
        local come = { fire = fire, time = time, host = host }
        if not is_missing then comes[#comes + 1] = come end
      end
    end
    table.sort(comes, function(a, b) -- any locale: numbers
      if a.time ~= b.time then return a.time < b.time end
      return a.host < b.host
    end)
    for _, each in ipairs(comes) do
      if each.time ~= now then set_clock(each.time) end
      each.from = now + process.now()
      local result = outcome(clients[each.host % 10 + 1])
      each.to = now + process.now()
      if result == "ran" then runs[#runs + 1] = each else assert.equal("duplicate", result) end
    end
    return runs
  end

  local function runs_once_for_each_fire(hosts, fires)
    math.randomseed(74)
    local runs = simulate(hosts, fires, 14)
    assert.equal(fires, #runs)
    for i, run in ipairs(runs) do assert.equal(i, run.fire) end
  end

  it("runs once per fire if clocks differ by less than a quarter of the period", function()
    runs_once_for_each_fire(20, 8)
  end)

  it("runs at most twice per period, at least half a period apart, if clocks differ by more than a quarter of it", function()
    math.randomseed(74)
    local runs = simulate(50, 8, 40)
    assert.is_true(#runs >= 8 and #runs <= 18, #runs)
    for i = 2, #runs do
      local least, most = runs[i].from - runs[i - 1].to, runs[i].to - runs[i - 1].from
      assert.is_true(most >= PERIOD / 2 and least <= PERIOD + 40, most)
    end
  end)

  it("runs once even if many processes call it at the same moment", function()
    local children = {}
    for i = 1, 12 do
      children[i] = world.run [[
        local client = require("holdfast").new(arg[1])
        local result, _, code = client:once("job", 60, function() return "ran" end)
        print(result or code)
        client:close()
      ]]
    end
    local counts = {}
    for _, child in ipairs(children) do
      assert.same({ "exit", 0 }, { child:wait(PATIENCE) }, child:output())
      local word = child:output():match("^(%l+)\n$")
      counts[word] = (counts[word] or 0) + 1
    end
    assert.same({ ran = 1, duplicate = 11 }, counts)
  end)

  it("passes lock and arguments to the function, and returns its results", function()
    local client = world.client()
    assert.same({ "job", true, 7, nil, 9 }, { client:once("job", PERIOD, function(lock, a, b, c)
      return lock:key(), lock:is_held(), a, b, c
    end, 7, nil, 9) })
    assert.is_true(client:once("other", PERIOD, nothing))
    local unfenced = world.client { fencing = false }
    assert.is_number((unfenced:once("fenced", PERIOD, function(lock) return lock:token() end)))
    assert.same({ nil, "my own", "odd", n = 3 }, { n = 3, client:once("third", PERIOD, function()
      return nil, "my own", "odd"
    end) })
  end)

  it("returns host, process, name, state and age of the latest run", function()
    local first = world.client { name = "nightly" }
    assert.equal("ran", outcome(first))
    local _, message, code, fire = world.client():once("job", PERIOD, nothing)
    assert.equal("duplicate", code)
    assert.matches('^"job" has run for this time, on [^ ]+ %(pid %d+, nightly%), 0%.%d s ago$', message)
    assert.same({ "done", "nightly" }, { fire.state, fire.name })
    assert.is_true(fire.age >= 0 and fire.age < PATIENCE, fire.age)
    assert.equal(require("spec.support.sys").getpid(), fire.pid)
    assert.is_string(fire.host)
  end)

  it("keeps its record for longer than the period, under the key with the client's prefix", function()
    assert.equal("ran", outcome(world.client { prefix = "shop:" }))
    local left = world.cli("PTTL", "holdfast_once:shop:job")
    assert.is_true(left > PERIOD * 1000 and left <= 2 * PERIOD * 1000, left)
  end)

  describe("while a run is in progress", function()
    -- The clock moves by less than the lease.
    local function while_it_runs(fn)
      assert.equal("ran", (outcome(world.client { lease = 600 }, {}, function()
        fn()
        return "ran"
      end)))
    end

    it("returns duplicate at once for the same fire", function()
      local other = world.client()
      while_it_runs(function()
        local start = process.now()
        assert.equal("duplicate", outcome(other))
        assert.is_true(process.now() - start < 5)
        assert.equal("busy", outcome(other, { retry = true, wait = 0 }))
      end)
    end)

    it("returns busy for the next fire, which another call can still run", function()
      local other = world.client()
      while_it_runs(function()
        pass(PERIOD)
        assert.equal("busy", outcome(other, { wait = 0 }))
        assert.equal("busy", outcome(world.client(), { wait = 0 }))
      end)
      assert.equal("ran", outcome(other))
      assert.equal("duplicate", outcome(world.client()))
    end)

    it("runs for the next fire after that run, if it waits", function()
      local waiting
      while_it_runs(function()
        pass(PERIOD)
        waiting = world.run [[
          local client = require("holdfast").new(arg[1])
          print(client:once("job", 60, { wait = 60 }, function() return "ran" end))
          client:close()
        ]]
        assert(process.wait_until(function()
          return world.cli("EXISTS", "holdfast_queue:{job}") == 1
        end, PATIENCE))
        assert.equal("duplicate", outcome(world.client()))
      end)
      assert.same({ "exit", 0 }, { waiting:wait(PATIENCE) })
      assert.equal("ran\n", waiting:output())
      assert.equal("duplicate", outcome(world.client()))
    end)
  end)

  it("with retry runs once even if the run takes longer than its record lasts", function()
    local waiting
    local result = outcome(world.client { lease = 600 }, { retry = true }, function()
      waiting = world.run [[
        local client = require("holdfast").new(arg[1])
        local opts = { wait = 60, retry = true }
        local result, _, code = client:once("job", 60, opts, function() return "ran" end)
        print(result or code)
        client:close()
      ]]
      local function is_waiting() return world.cli("EXISTS", "holdfast_queue:{job}") == 1 end
      assert(process.wait_until(is_waiting, PATIENCE), waiting:output())
      pass(2 * PERIOD + 1)
      assert.equal(0, world.cli("EXISTS", "holdfast_once:job"))
      return "ran"
    end)
    assert.equal("ran", result)
    assert.same({ "exit", 0 }, { waiting:wait(PATIENCE) })
    assert.equal("duplicate\n", waiting:output())
    assert.equal("ran", outcome(world.client(), { retry = true }))
  end)

  describe("after its process was killed", function()
    local function killed(opts)
      local child = world.run([[
        require("holdfast").new { url = arg[1], lease = 0.5 }:once("job", 60, ]] .. opts .. [[, function()
          print "runs"
          io.stdout:flush()
          while true do os.execute "sleep 1" end
        end)
      ]])
      assert(child:wait_output("runs", PATIENCE))
      child:kill "KILL"
      child:wait(PATIENCE)
    end

    it("does not run again for the same fire", function()
      killed "{}"
      assert(world.is_free "job")
      assert.equal("duplicate", outcome(world.client()))
      pass(PERIOD)
      assert.equal("ran", outcome(world.client()))
    end)

    it("runs again with retry once the lease has ended", function()
      killed "{ retry = true }"
      assert.equal("ran", outcome(world.client(), { retry = true }))
    end)
  end)

  it("runs at the next fire after the server's clock was set back", function()
    set_clock(3600)
    assert.equal("ran", outcome(world.client()))
    set_clock(PERIOD)
    assert.equal("ran", outcome(world.client()))
    assert.equal("duplicate", outcome(world.client()))
  end)

  it("holds the lock until success is recorded, so that no retry runs afterwards", function()
    local client, other = world.client { lease = 20 }, world.client()
    local result = client:once("job", PERIOD, { retry = true }, function()
      world.cli("REPLICAOF", "127.0.0.1", "1")
      world.program {
        code = [[
          require("spec.support.process").sleep(0.3) -- by then a record was refused
          os.execute("redis-cli -s " .. arg[1] .. " REPLICAOF NO ONE >/dev/null")
        ]],
        args = { world.server.path },
      }
      return "ran"
    end)
    assert.equal("ran", result)
    assert.equal("duplicate", outcome(other, { retry = true }))
  end)

  -- Calls after(state) when the server has run a command with this state. What after() returns, if
  -- anything, replaces the reply.
  local function after_command(after)
    local once = driver.lock.once
    finally(function() driver.lock.once = once end)
    function driver.lock.once(reader, keys, words)
      local results = { once(reader, keys, words) }
      local other = { after(words[4]) }
      if #other > 0 then results = other end
      return (table.unpack or unpack)(results, 1, 3)
    end
  end

  it("leaves the fire to other clients if the lock is lost before the function runs", function()
    local reasons, lost, ran = {}, false, false
    local client = world.client()
    after_command(function(state)
      if state ~= "running" or lost then return end
      lost = true
      world.cli("DEL", "job")
      assert.is_nil((client:lock("job"):check()))
    end)
    local _, message, code = client:once("job", PERIOD, { on_lost = function(_, reason)
      reasons[#reasons + 1] = reason
    end }, function() ran = true end)
    assert.equal("lost", code)
    assert.matches('^the lock "job" was lost %(deleted%) before the run began', message)
    assert.same({ false, { "deleted" } }, { ran, reasons })
    local _, text, duplicate = world.client():once("job", PERIOD, function() ran = true end)
    assert.is_nil(duplicate, text)
    assert.is_true(ran)
  end)

  it("leaves the fire to other clients if it cannot confirm its claim", function()
    local lost = false
    after_command(function(state)
      if state ~= "claimed" or lost then return end
      lost = true
      return nil, "no reply in time", "unreachable"
    end)
    assert.same({ "unreachable", "no reply in time" }, { outcome(world.client()) })
    assert.equal("ran", outcome(world.client()))
  end)

  it("gives up recording the end of its run after half a period", function()
    local child = world.run [[
      local client = require("holdfast").new(arg[1])
      local _, message, code, results = client:once("job", 0.6, { retry = true }, function()
        assert(require("holdfast.driver").command(client, { "CONFIG", "SET", "maxmemory", "1" }))
        return "ran"
      end)
      print(message, code, results[1])
      client:close()
    ]]
    assert.same({ "exit", 0 }, { child:wait(PATIENCE) }, child:output())
    assert.matches("OOM[^\n]*\tunreachable\tran\n$", child:output())
    world.cli("CONFIG", "SET", "maxmemory", "0")
    assert.is_truthy(world.is_free "job")
  end)

  it("counts as a completed run if its function released the lock, even with retry", function()
    assert.equal("ran", (world.client():once("job", PERIOD, { retry = true }, function(lock)
      assert(lock:release())
      return "ran"
    end)))
    local _, _, other, fire = world.client():once("job", PERIOD, { retry = true }, nothing)
    assert.same({ "duplicate", "done" }, { other, fire and fire.state })
  end)

  it("retries only on hosts with retry", function()
    local function fail() error("no luck", 0) end
    assert.is_false(pcall(outcome, world.client(), {}, fail))
    assert.equal("failed", (select(4, world.client():once("job", PERIOD, nothing))).state)
    assert.is_false(pcall(outcome, world.client(), { retry = true }, fail))
    assert.equal("duplicate", outcome(world.client()))
    assert.equal("ran", outcome(world.client(), { retry = true }))
    assert.equal("duplicate", outcome(world.client(), { retry = true }))
    assert.equal("duplicate", outcome(world.client()))
  end)

  it("reports a lost lock, and lets a retry run the fire", function()
    local client = world.client { lease = 0.5 }
    local _, _, code, results = client:once("job", PERIOD, { retry = true }, function(lock)
      world.cli("DEL", "job")
      assert(process.wait_until(function() return lock:lost() end, PATIENCE))
      return 1
    end)
    assert.same({ "lost", 1 }, { code, results[1] })
    assert.equal("ran", outcome(world.client(), { retry = true }))
  end)

  for _, loop in ipairs(loops) do
    it("runs once for several coroutines of " .. loop.name .. " that wait with retry", function()
      local client = world.client { driver = loop.driver }
      local results, failed = {}, false
      for i = 1, 4 do
        loop.spawn(function()
          local opts = { retry = i > 2, wait = 20 }
          local key = i > 2 and "retried" or "job"
          local ok, result, _, code = pcall(client.once, client, key, PERIOD, opts, function()
            loop.sleep(0.05)
            if key == "retried" and not failed then
              failed = true
              error("no luck", 0)
            end
            return "ran"
          end)
          results[i] = ok and (result or code) or result
        end)
      end
      loop.run()
      client:close()
      table.sort(results)
      assert.same({ "duplicate", "no luck", "ran", "ran" }, results)
    end)
  end

  for _, loop in ipairs(loops) do
    it("releases the lock if its coroutine under " .. loop.name .. " is closed while it records the end #puc", function()
      local close = coroutine.close -- Lua 5.4
      if not close or loop.name == "cqueues" then return end
      local client = world.client { driver = loop.driver }
      collectgarbage "stop" -- the collector would release what was forgotten
      loop.run(function()
        local running, ended
        loop.spawn(function()
          running = coroutine.running()
          client:once("job", PERIOD, function()
            world.cli("CONFIG", "SET", "maxmemory", "1")
            ended = true
          end)
        end)
        assert.is_true(loop.wait_until(function() return ended end))
        assert.is_true(close(running))
        assert.is_true(loop.wait_until(function() return world.cli("EXISTS", "job") == 0 end))
        client:close()
      end)
    end)
  end

  it("fails with conflict on a record of holdfast run --idempotent", function()
    world.cli("HSET", "holdfast_once:job", "done", "D")
    local result, message = outcome(world.client())
    assert.equal("conflict", result)
    assert.matches('holdfast_once:job', message, 1, true)
  end)
end)
