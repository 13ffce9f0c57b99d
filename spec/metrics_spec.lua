-- What a client reports about its work: counters and histograms by class, OpenMetrics text, events,
-- and how long it waited.

local files = require "spec.support.files"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local redis = require "spec.support.redis"

local PATIENCE = 10

-- Prometheus's own parser, which refuses text that is not OpenMetrics; prints each sample.
local PARSER = [[
import sys
from prometheus_client.openmetrics.parser import text_fd_to_metric_families
for family in text_fd_to_metric_families(open(sys.argv[1])):
    for sample in family.samples:
        labels = ",".join("%s=%s" % item for item in sorted(sample.labels.items()))
        print("%s{%s} %s" % (sample.name, labels, sample.value))
]]

-- → the process of the parser, which has ended, its exit code
local function parse(text)
  local path = process.directory() .. "/metrics"
  files.write(path, text)
  local parser = process.start { "/usr/bin/python3", "-c", PARSER, path,
    env = { LD_PRELOAD = false } }
  local how, code = parser:wait(30)
  assert.equal("exit", how, parser:output())
  return parser, code
end

local function parsed(text)
  local parser, code = parse(text)
  assert.equal(0, code, parser:output())
  local samples = {}
  for name, value in parser:output():gmatch("(%S+{.-}) (%S+)\n") do
    samples[name] = tonumber(value)
  end
  return samples
end

describe("a client", function()
  local server, client, other

  setup(function() server = redis.start() end)
  teardown(function() server:stop() end)
  before_each(function()
    server:cli("FLUSHALL")
    client, other = holdfast.new { url = server:url(), class = "jobs" }, holdfast.new(server:url())
  end)
  after_each(function()
    client:close()
    other:close()
  end)

  local function class_of(name) return client:stats().classes[name] end

  -- Starts a program, whose arg[1] is the server's URL.
  local function program(code) return process.lua { code = code, args = { server:url() } } end

  describe("counts", function()
    it("acquires of mutexes, one_by_one, idempotent and multi-locks", function()
      client:mutex("m"):acquire():release()
      client:one_by_one { class = "pay" }:execute("t", 1, function() end)
      client:idempotent("i", function() end)
      assert(client:multi_lock({ "x", "y" }):acquire()):release()
      local jobs = class_of("jobs")
      assert.same({ 4, 4, 1 }, { jobs.outcomes.acquired, jobs.releases, class_of("pay").releases })
    end)

    it("idempotent runs and calls of latches and plain semaphores by class", function()
      client:idempotent("i", { class = "pay" }, function() end)
      assert.is_nil(client:idempotent("i", { class = "pay" }, function() end))
      local pay = class_of("pay")
      assert.same({ 1, 1, 1 }, { pay.outcomes.acquired, pay.releases, pay.outcomes.duplicate })
      local latch = client:latch("gate", { class = "gates" })
      latch:set(1)
      assert.is_nil(latch:wait(0))
      latch:count_down()
      assert.is_true(latch:wait())
      local gates = class_of("gates")
      assert.same({ 1, 1, 1 },
        { gates.outcomes.acquired, gates.outcomes.timeout, gates.waited.count })
      local places = client:plain_semaphore("places", { class = "places" })
      places:set(1)
      assert.is_true(places:acquire())
      assert.is_nil(places:acquire(1, 0))
      local of = class_of("places")
      assert.same({ 1, 1, 1 }, { of.outcomes.acquired, of.outcomes.busy, of.waited.count })
      assert.is_true(of.round_trips.count >= 3)
      assert.equal(0, class_of("jobs").round_trips.count)
    end)
  end)

  describe("writes as OpenMetrics", function()
    it("counters that Prometheus's parser reads as the same numbers", function()
      assert(client:lock("a", { class = 'odd "class" \\ {x=1}' }):acquire()):release()
      for _ = 1, 5 do assert(client:lock("a"):acquire()):release() end
      local samples = parsed(client:metrics())
      for name, value in pairs {
        ["acquires_total{class=jobs,outcome=acquired}"] = 5, ["acquires_total{class=jobs,outcome=busy}"] = 0,
        ["releases_total{class=jobs}"] = 5, ["wait_seconds_count{class=jobs}"] = 5,
        ["wait_seconds_bucket{class=jobs,le=+Inf}"] = 5, ["losses_total{class=jobs,reason=expired}"] = 0,
        ["holds{}"] = 0, ["round_trips_total{}"] = client:stats().round_trips,
        ["round_trip_seconds_count{class=jobs}"] = 10,
      } do assert.message(name).equal(value, samples["holdfast_" .. name]) end
      assert.equal(class_of("jobs").round_trips.sum,
        samples["holdfast_round_trip_seconds_sum{class=jobs}"], 1e-6)
    end)

    it("the end of each bucket once, with a decimal point", function()
      local ends = {}
      for name in client:metrics():gmatch 'holdfast_wait_seconds_bucket{class="jobs",le="(.-)"}' do
        ends[#ends + 1] = name
      end
      assert.same({ "0.0001", "0.00025", "0.0005", "0.001", "0.0025", "0.005", "0.01", "0.025", "0.05",
        "0.1", "0.25", "0.5", "1.0", "5.0", "15.0", "60.0", "+Inf" }, ends)
    end)

    it("large counts with all digits, and other numbers with nine", function()
      local text = require("holdfast.metrics").render {
        { "acquires", "_total", "", 3000000001 }, { "holds", "", "", 2 ^ 53 - 1 },
        { "wait_seconds", "_sum", "", 1 / 3 },
      }
      assert.matches("\nholdfast_acquires_total 3000000001\n", text)
      assert.matches("\nholdfast_holds 9007199254740991\n", text)
      assert.matches("\nholdfast_wait_seconds_sum 0.333333333\n", text)
      assert.matches("\n# EOF\n$", text)
    end)

    it("the wait of with_lock, which the function can read with lock:waited()", function()
      assert.is_true(client:with_lock("a", function(lock) return lock:waited() < PATIENCE end))
      assert.is_nil(client:lock("a"):waited())
    end)

    it("no key names", function()
      assert(client:lock("secret-key"):acquire()):release()
      assert.is_nil(client:metrics():find("secret-key", 1, true))
    end)
  end)

  describe("has an event listener that", function()
    local function listen(of)
      local list = {}
      local listening = holdfast.new { url = server:url(), class = "seen",
        on_event = function(event)
        if of == nil or of[event.event] then list[#list + 1] = event end
      end }
      return listening, list
    end

    local LOCKS = { acquired = true, busy = true, released = true, lost = true }

    it("receives acquired, busy, released and lost events with their details", function()
      local seen, list = listen(LOCKS)
      local lock = assert(seen:lock("k"):acquire())
      local owner, token = lock:owner(), lock:token()
      assert.same({ "acquired", "k", owner, token, "seen" },
        { list[1].event, list[1].key, list[1].owner, list[1].token, list[1].class })
      assert.is_true(list[1].seconds >= 0)
      lock:release()
      assert.same({ "released", "k", owner, token },
        { list[2].event, list[2].key, list[2].owner, list[2].token })
      local held = assert(other:lock("k"):acquire())
      assert.is_nil(seen:lock("k"):acquire(0))
      assert.same({ "busy", "k", "busy" }, { list[3].event, list[3].key, list[3].code })
      held:release()
      lock = assert(seen:lock("k"):acquire())
      server:cli("DEL", "k")
      lock:check()
      assert.same({ "lost", "k", "deleted" }, { list[5].event, list[5].key, list[5].code })
      assert.equal(5, #list)
      seen:close()
    end)

    it("receives a loss as soon as the call that found it returns", function()
      local seen, list = listen { lost = true }
      local function check_found(what, find)
        for i = #list, 1, -1 do list[i] = nil end
        find()
        assert.message(what).equal("deleted", list[1] and list[1].code)
      end
      for name, argument in pairs { check = false, extend = 5, release = false } do
        for _, lock in ipairs { seen:lock "k", seen:multi_lock { "k", "l" } } do
          check_found(tostring(lock) .. ":" .. name, function()
            assert(lock:acquire())
            server:cli("DEL", "k", "l")
            assert.equal("lost", (select(3, lock[name](lock, argument or nil))))
          end)
          lock:release()
        end
      end
      check_found("idempotent", function()
        seen:idempotent("i", function() server:cli("DEL", "i") end)
      end)
      seen:close()
    end)

    it("receives opened and closed events", function()
      local seen, list = listen { opened = true, closed = true }
      assert(seen:ping())
      assert(seen:lock("a"):acquire()):release()
      assert.equal("opened", list[1].event)
      assert.matches("redis", list[1].server)
      server:cli("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
      assert(seen:ping())
      assert.truthy(process.wait_until(function()
        seen:ping()
        return list[#list].event == "opened" and #list >= 3
      end, PATIENCE))
      local closed = {}
      for _, event in ipairs(list) do
        if event.event == "closed" then closed[#closed + 1] = event end
      end
      assert.truthy(closed[1])
      for _, event in ipairs(closed) do
        assert.same({ list[1].server, "unreachable" }, { event.server, event.code })
        assert.is_nil(event.key)
      end
      local before = #list
      seen:close()
      assert.is_true(#list > before)
      assert.same({ "closed", "closed" }, { list[#list].event, list[#list].code })
    end)

    it("receives all events if it is the client's, even those of locks with their own listener", function()
      local seen, list = listen(LOCKS)
      local own = {}
      local lock = seen:lock("own", { on_event = function(event)
        own[#own + 1] = event.event
        for name in pairs(event) do event[name] = nil end -- each listener gets a table of its own
      end })
      assert(lock:acquire())
      local another = assert(seen:lock("another"):acquire())
      lock:release()
      local received = {}
      for i, event in ipairs(list) do received[i] = event.event .. " " .. event.key end
      assert.same({ "acquired own", "acquired another", "released own" }, received)
      assert.same({ "acquired", "released" }, own)
      another:release()
      seen:close()
    end)

    it("receives events after a coroutine with a waiting listener was dropped", function()
      if not require("holdfast.compat").yields_in_pcall then return end
      local received = {}
      local slow = client:lock("slow", { on_event = function() coroutine.yield("waits") end })
      local thread = coroutine.create(function() slow:acquire() end)
      assert.same({ true, "waits" }, { coroutine.resume(thread) })
      local lock = other:lock("k", { on_event = function(event)
        received[#received + 1] = event.event
      end })
      assert(lock:acquire())
      assert.same({}, received)
      slow, thread = nil, nil -- luacheck: ignore 311
      for _ = 1, 2 do collectgarbage() end
      lock:release()
      assert.same({ "acquired", "released" }, received)
    end)

    it("receives its lock's events in a multi-lock, counted in that lock's class", function()
      local received = {}
      local function lock(name, more)
        return client:lock(name .. more, { class = name, on_event = function(event)
          received[#received + 1] = ("%s %s %s"):format(name, event.event, event.key)
        end })
      end
      local both = holdfast.multi_lock { lock("a", 1), lock("b", 1) }
      assert(both:acquire()):release()
      assert(both:acquire())
      server:cli("DEL", "b1")
      both:check()
      both:release()
      table.sort(received)
      assert.same({
        "a acquired a1", "a acquired a1", "a released a1", "a released a1",
        "b acquired b1", "b acquired b1", "b lost b1", "b released b1",
      }, received)
      for _, name in ipairs { "a", "b" } do assert.equal(2, class_of(name).outcomes.acquired) end
      assert.same({ 1, 1 }, { class_of("b").releases, class_of("b").lost.deleted })
    end)

    it("receives events of idempotent runs, one_by_one, latches and plain semaphores", function()
      local list
      local function given()
        list = {}
        return { class = "seen", on_event = function(event) list[#list + 1] = event end }
      end
      local function described()
        local text = {}
        for i, event in ipairs(list) do
          assert.equal("seen", event.class)
          assert.is_true(event.seconds >= 0)
          text[i] = event.event .. " " .. event.key .. (event.code and " " .. event.code or "")
        end
        return text
      end
      client:idempotent("i", given(), function() end)
      assert.same({ "acquired i", "released i" }, described())
      client:one_by_one(given()):execute("t", 1, function() end)
      assert.same({ "acquired", "released" }, { list[1].event, list[2].event })
      local latch = client:latch("gate", given())
      latch:set(1)
      assert.is_nil(latch:wait(0))
      latch:count_down()
      assert.is_true(latch:wait())
      assert.same({ "failed gate timeout", "acquired gate" }, described())
      local places = client:plain_semaphore("places", given())
      places:set(1)
      assert.is_true(places:acquire())
      assert.is_nil(places:try_acquire())
      assert.same({ "acquired places", "busy places busy" }, described())
    end)

    it("receives a failed renewal, and the next one that succeeds", function()
      local seen, list = listen { at_risk = true, renewed_late = true, lost = true }
      local lock = assert(seen:lock("kept", { lease = 2, watchdog = true }):acquire())
      assert.truthy(process.wait_until(function() return seen:stats().renewals > 0 end, PATIENCE))
      server:kill("STOP")
      assert.truthy(process.wait_until(function()
        lock:is_held()
        return list[1]
      end, PATIENCE))
      server:kill("CONT")
      assert.equal("at_risk", list[1].event)
      assert.is_true(list[1].seconds > 0)
      assert.truthy(process.wait_until(function()
        lock:is_held()
        return list[2]
      end, PATIENCE))
      assert.equal("renewed_late", list[2].event)
      assert.is_true(seen:stats().classes.seen.renewed_late >= 1)
      lock:release()
      seen:close()
    end)

    for what, case in pairs {
      ["an error"] = { 'error "broken listener"', "error in on_event .reported only once.: [^\n]*broken listener" },
      ["an error that has no string"] = {
        "error(setmetatable({}, { __tostring = function() error 'no text' end }))",
        "error in on_event .reported only once.: .an error value of type table",
      },
    } do
      it(("is called again after it has raised %s, which is reported once"):format(what), function()
        local child = program(([[
          local seen = 0
          local client = require("holdfast").new { url = arg[1], on_event = function()
            seen = seen + 1
            %s
          end }
          for _ = 1, 3 do assert(client:lock("a"):acquire()):release() end
          client:close()
          print(seen >= 6)
        ]]):format(case[1]))
        assert.equal("exit", child:wait(PATIENCE))
        assert.matches(case[2], child:output())
        assert.equal(1, select(2, child:output():gsub("error in on_event", "")), child:output())
        assert.matches("true\n$", child:output())
      end)
    end

    it("can be collected, as can its events, whatever error it has raised", function()
      local child = program [[
        local left = setmetatable({}, { __mode = "k" })
        local function use()
          local function broken(event) left[event] = true error "broken" end
          local client = require("holdfast").new { url = arg[1], on_event = broken }
          local function of_lock(event) left[event] = client and true end
          left[broken], left[of_lock] = true, true
          for _ = 1, 3 do
            client:with_lock("a", { on_event = of_lock }, function() end)
          end
          client:close()
        end
        for _ = 1, 20 do use() end
        for _ = 1, 5 do collectgarbage() end
        local count = 0
        for _ in pairs(left) do count = count + 1 end
        print("left", count < 15) -- a stale slot of the stack may keep the last client's
      ]]
      assert.same({ "exit", 0 }, { child:wait(PATIENCE) })
      assert.matches("left\ttrue\n$", child:output())
    end)

    it("receives only documented events and fields", function()
      local fields, events_of_lock = {}, {}
      local function note(event)
        events_of_lock[#events_of_lock + 1] = event.event
        for name in pairs(event) do fields[name] = true end
      end
      local seen = listen()
      seen:with_lock("k", { on_event = note }, function() end)
      local held = assert(other:lock("k"):acquire())
      seen:lock("k", { on_event = note }):acquire(0)
      held:release()
      seen:close()
      assert.same({ "acquired", "released", "busy" }, events_of_lock)
      local text = files.read("docs/reference/api/events.md")
      for name in pairs(fields) do
        assert.message(name).truthy(text:find("`" .. name .. "`", 1, true))
      end
    end)

    it("is not called again while it is running", function()
      local seen, inside, deepest, user = {}, 0, 0, nil
      user = holdfast.new { url = server:url(), on_event = function(event)
        if not LOCKS[event.event] then return end
        seen[#seen + 1] = event.event .. " " .. event.key
        inside, deepest = inside + 1, math.max(deepest, inside + 1)
        if #seen == 1 then assert(user:lock("second"):acquire()):release() end
        inside = inside - 1
      end }
      local function use() assert(user:lock("first"):acquire()):release() end
      for _, call in ipairs { use, coroutine.wrap(use) } do
        seen, deepest = {}, 0
        call()
        assert.same({ "acquired first", "acquired second", "released second", "released first" }, seen)
        assert.equal(1, deepest)
      end
      user:close()
    end)

    it("lets its caller return even if each of its calls causes another event", function()
      local calls, lock = 0, nil
      local user = holdfast.new { url = server:url(), on_event = function(event)
        if not LOCKS[event.event] or calls == 2000 then return end
        calls = calls + 1
        if event.event == "released" then assert(lock:acquire(0)):release() end
      end }
      lock = user:lock "k"
      assert(lock:acquire()):release()
      assert.is_true(calls < 2000, calls)
      local before = calls
      assert.is_false(lock:is_held())
      assert.is_true(calls > before, "the rest is reported by the next call")
      calls = 2000
      user:close()
    end)
  end)
end)
