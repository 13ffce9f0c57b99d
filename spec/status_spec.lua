-- What an operator sees under ngx_lua: the sums of all workers, and the live page.

local nginx = require "spec.support.nginx"
local process = require "spec.support.process"
local redis = require "spec.support.redis"

if not nginx.is_there() then return end

local command = require "spec.support.command"
local dkjson = require "dkjson" -- busted's own
local fake = require "spec.support.fake"
local holdfast = require "holdfast"

local PATIENCE = 20

local INIT = [[
  %s
  init_by_lua_block {
    HOLDFAST = require "holdfast"
    CLIENT_URL = "%s"
    NOTED = ""
    function NOTE(event) NOTED = NOTED .. event.event .. " " .. event.class .. ";" end
    CLIENT = HOLDFAST.new { %s, class = "orders" }
    %s
  }
]]

local SERVER = [[
  location = /work { content_by_lua_block {
    CLIENT:with_lock(ngx.var.arg_key or "k" .. ngx.worker.pid(), function() end)
    ngx.print(ngx.worker.pid())
  } }
  location = /once { content_by_lua_block {
    local client = HOLDFAST.new { url = CLIENT_URL, class = "orders" }
    client:with_lock("once", function() end)
    client:close()
    ngx.print("done")
  } }
  location = /paid {
    access_by_lua_block {
      HOLDFAST.idempotent_request { client = CLIENT, key = "paid", class = "pay", on_event = NOTE }
    }
    content_by_lua_block { ngx.print("paid") }
    log_by_lua_block { HOLDFAST.finish() }
  }
  location = /noted { content_by_lua_block { ngx.print(NOTED) } }
  location = /metrics { content_by_lua_block { HOLDFAST.metrics() } }
  location = /status { lua_check_client_abort on; content_by_lua_block {
    ngx.header.worker = ngx.worker.pid()
    HOLDFAST.status { client = CLIENT }
  } }
  location = /lose { content_by_lua_block {
    local lock = CLIENT:lock("lost")
    assert(lock:acquire())
    local other = HOLDFAST.new(CLIENT_URL)
    other:lock("lost"):force_release()
    other:close()
    ngx.print(select(3, lock:check()))
  } }
]]

describe("for operators under ngx_lua", function()
  local server, front

  local function start(options)
    local dict = options.dict or "lua_shared_dict holdfast 1m;"
    local where = options.where or ('url = "%s"'):format(server:url())
    front = nginx.start {
      workers = options.workers, tcp = options.tcp, server = SERVER .. (options.more or ""),
      http = INIT:format(dict, server:url(), where, options.init or "") .. (options.http or ""),
    }
  end

  local function acquired()
    return tonumber(front:get("/metrics").body:match('holdfast_acquires_total{class="orders",outcome="acquired"} (%d+)'))
  end

  before_each(function() server = redis.start { tcp = true } end)
  after_each(function()
    if front then front:stop("TERM") end
    front = nil
    server:stop()
  end)

  describe("metrics", function()
    it("are the exact sum of two workers, and stay over a reload", function()
      start { workers = 2 }
      local seen, count = {}, 0
      local function work(times)
        for _ = 1, times do
          local response = front:get("/work")
          assert.equal(200, response.status, response.body)
          seen[response.body], count = true, count + 1
        end
      end
      assert.truthy(process.wait_until(function()
        work(10)
        return seen[tostring(front:workers()[1])] and seen[tostring(front:workers()[2])]
      end, PATIENCE))
      assert.truthy(process.wait_until(function()
        return acquired() == count
      end, PATIENCE), ("%s of %d"):format(acquired(), count))
      local before = front:workers()
      work(20) -- not added yet when the workers are asked to end
      front:reload()
      assert.truthy(process.wait_until(function()
        for _, pid in ipairs(front:workers()) do
          if pid == before[1] or pid == before[2] then return false end
        end
        return #front:workers() == 2
      end, PATIENCE))
      work(15)
      assert.truthy(process.wait_until(function()
        return acquired() == count
      end, PATIENCE), ("%s of %d"):format(acquired(), count))
      assert.same({}, front:errors())
    end)

    it("have what a client counted that was closed at once", function()
      start {}
      for i = 1, 5 do
        assert.equal("done", front:get("/once").body)
        assert.truthy(process.wait_until(function() return acquired() == i end, PATIENCE),
          ("%s of %d"):format(acquired(), i))
      end
    end)

    it("have what clients of the blocking driver count, closed ones and losses too", function()
      local new = 'HOLDFAST.new { url = CLIENT_URL, driver = "posix", class = "%s", lease = 1 }'
      local function use(class, name)
        return ([[ local client = %s client:with_lock("%s", function() end) ]]):format(
          new:format(class), name)
      end
      start {
        init = ("EARLY = %s EARLY:with_lock('a', function() end)"):format(new:format("early")),
        http = ("init_worker_by_lua_block { BLOCKING = %s BLOCKING:with_lock('a', function() end) }")
          :format(new:format("blocking")),
        more = ([[
          location = /early { content_by_lua_block { EARLY:with_lock("a", function() end) } }
          location = /block { content_by_lua_block { BLOCKING:with_lock("a", function() end) } }
          location = /closed { content_by_lua_block { CLOSED client:close() } }
          location = /left { content_by_lua_block { LEFT = BLOCKING:lock("left") LEFT:acquire() } }
        ]]):gsub("CLOSED", use("closed", "b")),
      }
      local function comes_to_say(line)
        assert.truthy(process.wait_until(function()
          return front:get("/metrics").body:find(line, 1, true)
        end, PATIENCE), line)
      end
      comes_to_say 'holdfast_acquires_total{class="blocking",outcome="acquired"} 1\n'
      for i = 2, 4 do
        front:get("/block")
        comes_to_say(('holdfast_acquires_total{class="blocking",outcome="acquired"} %d\n'):format(i))
      end
      comes_to_say 'holdfast_acquires_total{class="early",outcome="acquired"} 1\n'
      front:get("/early")
      comes_to_say 'holdfast_acquires_total{class="early",outcome="acquired"} 2\n'
      front:get("/closed")
      comes_to_say 'holdfast_releases_total{class="closed"} 1\n'
      front:get("/left")
      assert.truthy(process.wait_until(function() return server:cli("DEL", "left") == 1 end))
      comes_to_say 'holdfast_losses_total{class="blocking",reason="deleted"} 1\n' -- without a call
      for _ = 1, 5 do front:get("/block") end
      front:reload()
      comes_to_say 'holdfast_acquires_total{class="blocking",outcome="acquired"} 11\n' -- a worker more
      assert.same({}, front:errors())
    end)

    it("know the class of an idempotent request, and its listener receives the events", function()
      start {}
      assert.equal("paid", front:get("/paid").body)
      assert.truthy(process.wait_until(function()
        return front:get("/noted").body == "acquired pay;released pay;"
      end, PATIENCE), front:get("/noted").body)
      assert.truthy(process.wait_until(function()
        return front:get("/metrics").body:find('holdfast_releases_total{class="pay"} 1', 1, true)
      end, PATIENCE))
    end)

    it("have no number of holds, and name the dict that is missing", function()
      start {}
      front:get("/work")
      assert.truthy(process.wait_until(function() return acquired() == 1 end, PATIENCE))
      local text = front:get("/metrics").body
      assert.is_nil(text:find("holdfast_holds", 1, true))
      assert.truthy(text:find('holdfast_losses_total{class="orders",reason="deleted"} 0\n', 1, true))
      assert.matches("# EOF\n$", text)
      local bounds, last = {}, 0
      for bound, at in text:gmatch('holdfast_wait_seconds_bucket{class="orders",le="([^"]+)"}()') do
        bounds[#bounds + 1], last = tonumber(bound) or math.huge, at
      end
      for i = 2, #bounds do assert.is_true(bounds[i - 1] < bounds[i], bounds[i]) end
      assert.equal(math.huge, bounds[#bounds])
      local count = text:find('holdfast_wait_seconds_count{class="orders"}', 1, true)
      local sum = text:find('holdfast_wait_seconds_sum{class="orders"}', 1, true)
      assert.is_true(last < count and count < sum)
      front:stop("TERM")
      start { dict = "", more = "location = /closed { content_by_lua_block { CLIENT:close() } }\n" }
      front:get("/work")
      assert.equal(200, front:get("/closed").status)
      assert.same({}, front:errors())
      assert.equal(500, front:get("/metrics").status)
      assert.matches('there is no shared dict; add "lua_shared_dict holdfast 1m;"',
        table.concat(front:errors(), "\n"), 1, true)
    end)

    it("have the losses of all classes, which the page adds up by reason", function()
      start { more = [[ location = /lose_another { content_by_lua_block {
        local other = HOLDFAST.new { url = CLIENT_URL, driver = "posix" }
        for _, class in ipairs { "a", "b" } do
          local lock = CLIENT:lock("lost", { class = class })
          assert(lock:acquire())
          other:lock("lost"):force_release()
          lock:check()
        end
        other:close()
        ngx.print("lost")
      } } ]] }
      assert.equal("lost", front:get("/lose").body)
      assert.equal("lost", front:get("/lose_another").body)
      local losses
      assert.truthy(process.wait_until(function()
        losses = dkjson.decode(front:get("/status?json").body).losses
        return losses.deleted == 3
      end, PATIENCE), losses and losses.deleted)
      local all = 0
      for _, count in pairs(losses) do all = all + count end
      assert.equal(3, all)
    end)

    it("leave alone what others keep in the dict", function()
      start { more = [[ location = /others { content_by_lua_block {
        local dict = ngx.shared.holdfast
        dict:set("of another", 1)
        dict:set("of|another", "text")
        dict:set("losses_total", "text")
      } } ]] }
      front:get("/work")
      front:get("/others")
      assert.truthy(process.wait_until(function() return acquired() == 1 end, PATIENCE))
      local text = front:get("/metrics").body
      assert.is_nil(text:find("another", 1, true))
      assert.equal(200, front:get("/status?json").status)
      assert.same({}, front:errors())
    end)

    it("are read by Prometheus's parser", function()
      start { more = [[ location = /other { content_by_lua_block {
        for _, class in ipairs { "a", "other", "z" } do
          CLIENT:with_lock("of " .. class, { class = class }, function() end)
        end
      } } ]] }
      front:get("/work")
      front:get("/other")
      assert.truthy(process.wait_until(function()
        return acquired() == 1 and front:get("/metrics").body:find('class="z"', 1, true)
      end, PATIENCE))
      local response = front:get("/metrics")
      assert.matches("^application/openmetrics%-text", response.headers["content-type"])
      local path = process.directory() .. "/metrics"
      local file = assert(io.open(path, "w"))
      file:write(response.body)
      file:close()
      local parser = process.start { "/usr/bin/python3", "-c",
        "import sys; from prometheus_client.openmetrics.parser import text_fd_to_metric_families as read\n"
          .. "print(len(list(read(open(sys.argv[1])))))", path, env = { LD_PRELOAD = false } }
      assert.same({ "exit", 0 }, { parser:wait(PATIENCE) }, parser:output())
      assert.is_true(tonumber(parser:output()) >= 10)
    end)
  end)

  it("a loss is reported by on_lost and on_event without a further call", function()
    front = nginx.start {
      http = ([[
        lua_shared_dict noted 1m;
        init_by_lua_block {
          local function note(event)
            if event.event == "lost" then ngx.shared.noted:set("event", event.key .. " " .. event.code) end
          end
          CLIENT = require("holdfast").new { url = "%s", on_event = note }
        }
      ]]):format(server:url()),
      server = [[
        location = /hold { content_by_lua_block {
          LOCK = CLIENT:lock("k", { lease = 3, watchdog = true, owner = "o", on_lost = function(_, reason)
            ngx.shared.noted:set("lost", reason)
          end })
          assert(LOCK:acquire())
          ngx.say("held")
          ngx.flush(true)
          ngx.sleep(10)
        } }
        location = /noted { content_by_lua_block {
          ngx.print(ngx.shared.noted:get("event"), "; ", ngx.shared.noted:get("lost"))
        } }
      ]],
    }
    local request = front:begin("/hold")
    assert.truthy(process.wait_until(function()
      return server:cli("EXISTS", "k") == 1
    end, PATIENCE))
    server:cli("DEL", "k")
    assert.truthy(process.wait_until(function()
      return front:get("/noted").body == "k deleted; deleted"
    end, PATIENCE),
      front:get("/noted").body)
    request:abort()
  end)

  it("a listener may wait for a lock, and events are delivered after a request that ended in one", function()
    front = nginx.start {
      http = ([[
        lua_shared_dict noted 1m;
        init_by_lua_block {
          CLIENT = require("holdfast").new { url = "%s", on_event = function(event)
            local noted, what = ngx.shared.noted, event.event .. " " .. (event.key or "")
            if what == "lost k" then
              noted:set("took", CLIENT:with_lock("log", { wait = 60 }, function() return "yes" end))
            elseif what == "acquired stuck" then
              noted:set("phase", ngx.get_phase())
              CLIENT:lock("log"):acquire(60)
            end
            noted:set(what, "noted")
          end }
        }
      ]]):format(server:url()),
      server = [[
        location = /hold { content_by_lua_block {
          LOCK = CLIENT:lock("k", { lease = 3, watchdog = true })
          KEPT = CLIENT:lock("kept", { lease = 3, watchdog = true })
          assert(LOCK:acquire())
          assert(KEPT:acquire())
          ngx.say("held")
          ngx.flush(true)
          ngx.sleep(30)
        } }
        location = /stuck { content_by_lua_block {
          ngx.thread.spawn(function() CLIENT:lock("stuck"):acquire() end)
          repeat ngx.sleep(0.01) until ngx.shared.noted:get("phase")
          ngx.exit(200)
        } }
        location = /work { content_by_lua_block {
          CLIENT:with_lock("work", function() end)
          ngx.print(ngx.shared.noted:get("released work"))
        } }
        location = /noted { content_by_lua_block {
          ngx.print(ngx.shared.noted:get(ngx.var.arg_what))
        } }
      ]],
    }
    local other = holdfast.new(server:url())
    local log = assert(other:lock("log"):acquire())
    local function noted(what) return front:get("/noted?what=" .. what).body end
    local function is_waited_for() return server:cli("ZCARD", "holdfast_queue:{log}") == 1 end
    local request = front:begin("/hold")
    assert.truthy(process.wait_until(function()
      return server:cli("EXISTS", "k", "kept") == 2
    end, PATIENCE))
    server:cli("DEL", "k")
    assert.truthy(process.wait_until(is_waited_for, PATIENCE))
    process.sleep(4)
    assert.equal(1, server:cli("EXISTS", "kept"))
    assert.is_true(log:release())
    assert.truthy(process.wait_until(function() return noted("took") == "yes" end, PATIENCE))
    request:abort()
    assert(log:acquire(PATIENCE))
    front:get("/stuck")
    assert.equal("content", noted("phase"))
    assert.truthy(process.wait_until(function()
      process.sleep(0.2) -- not so often that a request comes before each look of the client's task
      return front:get("/work").body == "noted"
    end, PATIENCE))
    assert.truthy(process.wait_until(function() return not is_waited_for() end, PATIENCE))
    log:release()
    other:close()
  end)

  describe("the status page", function()
    local client

    before_each(function() client = holdfast.new { url = server:url(), name = "lua-owner" } end)
    after_each(function() client:close() end)

    local function state(query, status)
      local response = front:get("/status?json" .. (query or ""))
      assert.equal(status or 200, response.status, response.body)
      return dkjson.decode(response.body)
    end

    local function entry(key, query)
      for _, lock in ipairs(state(query).locks) do
        if lock.key == key then return lock end
      end
    end

    local function eventually(key, wanted)
      return assert(process.wait_until(function()
        local lock = entry(key)
        return lock and wanted(lock) and lock
      end, PATIENCE), key .. " is not shown: " .. front:get("/status?json").body)
    end

    it("shows locks of a job, of Java and of Lua, holders and waiters", function()
      start {}
      local lock = assert(client:lock("from:lua"):acquire())
      server:cli("HSET", "from:java", "b983c153-7421-469a-addb-44fb92259a1b:1", 1)
      server:cli("PEXPIRE", "from:java", 30000)
      local job = command.start(server, { "run", "--name", "nightly", "from:job", "--", "sleep",
        "60" })
      local waiter = command.start(server, { "run", "--name", "patient", "from:lua", "--", "sleep",
        "60" })
      local seen = eventually("from:lua", function(of)
        return of.name and of.waiters == 1 and of.queue[1].name
      end)
      assert.equal("lua-owner", seen.name)
      assert.equal(("%.0f"):format(lock:token()), seen.token)
      assert.equal("patient", seen.queue[1].name)
      assert.equal(waiter.pid, seen.queue[1].pid)
      assert.is_true(seen.ttl > 10 and seen.ttl <= 30, tostring(seen.ttl))
      assert.is_true(math.abs(os.time() - seen.since) < 60,
        ("since %s, now %s"):format(seen.since, os.time()))
      seen = eventually("from:job", function(of) return of.name end)
      assert.equal("nightly", seen.name)
      assert.equal(job.pid, seen.pid)
      seen = eventually("from:java", function() return true end)
      assert.equal("b983c153-7421-469a-addb-44fb92259a1b:1", seen.owner)
      local mutex = assert(client:mutex("from:mutex"):acquire())
      assert.is_true(eventually("from:mutex", function() return true end).mutex)
      assert.is_nil(entry("from:java", "&prefix=from%3Al"))
      assert.truthy(entry("from:lua", "&prefix=from%3Al"))
      mutex:release()
      lock:release()
      eventually("from:lua", function(of) return of.name == "patient" end)
      waiter:kill("TERM")
      assert.equal("exit", waiter:wait(PATIENCE))
      assert.truthy(process.wait_until(function() return not entry("from:lua") end, PATIENCE))
      local points = state().points
      local handed, waiting = 0, 0
      for _, point in ipairs(points) do
        handed, waiting = handed + (point.hand_offs or 0), math.max(waiting, point.waiting or 0)
      end
      assert.equal(120, #points)
      assert.same({}, { points[1].hand_offs, points[1].waiting }) -- nobody looked then
      assert.equal(1, waiting)
      assert.equal(1, handed)
      job:kill("TERM")
      job:wait(PATIENCE)
      assert.same({}, front:errors())
    end)

    -- How often the server has been asked for keys.
    local function scans()
      local info = server:cli("INFO", "commandstats")
      return tonumber(info:match("cmdstat_scan:calls=(%d+)") or 0)
    end

    -- Waits until nginx has looked by itself, from beginning to end.
    local function wait_for_look(of_one)
      local from = scans()
      assert.truthy(process.wait_until(function()
        return scans() >= from + 2 * of_one
      end, 60), "nginx does not look while the page is closed")
    end

    -- → what each of two workers answers
    local function both()
      local answers, count = {}, 0
      assert.truthy(process.wait_until(function()
        local response = front:get("/status?json")
        local pid = response.headers.worker
        count = count + (answers[pid] and 0 or 1)
        answers[pid] = dkjson.decode(response.body)
        return count == 2
      end, PATIENCE), "one worker answers everything")
      local list = {}
      for _, answer in pairs(answers) do list[#list + 1] = answer end
      return list
    end

    local function sums(answer)
      local handed, most = 0, 0
      for _, point in ipairs(answer.points) do
        handed, most = handed + (point.hand_offs or 0), math.max(most, point.waiting or 0)
      end
      return { handed, most }
    end

    local function patient()
      return command.start(server, { "run", "busy", "--", "sleep", "600" })
    end

    it("shows the same in each worker, also of what happened while it was closed", function()
      start { workers = 2 }
      local of_one = scans()
      assert.is_true(state().shared)
      of_one = scans() - of_one
      both() -- from now on each worker listens for losses
      assert.equal("lost", front:get("/lose").body)
      local lock = assert(client:lock("busy"):acquire())
      local first = patient()
      assert.truthy(process.wait_until(function() return lock:info().waiters == 1 end, PATIENCE))
      local second = patient()
      assert.truthy(process.wait_until(function() return lock:info().waiters == 2 end, PATIENCE))
      wait_for_look(of_one)
      local seen_at = process.now()
      lock:release()
      wait_for_look(of_one)
      local for_seconds = process.now() - seen_at
      assert.truthy(process.wait_until(function()
        local answers = both()
        local counted = answers[1].losses.deleted == 1 and answers[2].losses.deleted == 1
        return counted and answers[1].lost[1] and answers[2].lost[1]
      end, PATIENCE))
      for _, answer in ipairs(both()) do
        assert.same({ 1, 2 }, sums(answer))
        local loss = answer.lost[1]
        assert.same({ "lost", "deleted", "orders", 1 }, { loss.key, loss.reason, loss.class, #answer.lost })
        assert.is_true(math.abs(loss.time - answer.time) < 60)
        assert.equal("losses", answer.state)
        local queue = answer.locks[1].queue
        assert.equal(second.pid, queue[1].pid)
        assert.is_true(queue[1].seconds >= for_seconds,
          ("%s, but %s"):format(queue[1].seconds, for_seconds))
      end
      first:kill("TERM") -- both workers see what follows, and one of them counts it
      assert.equal("exit", first:wait(PATIENCE))
      assert.truthy(process.wait_until(function()
        local answers = both()
        return sums(answers[1])[1] > 1 and sums(answers[2])[1] > 1
      end, PATIENCE))
      for _, answer in ipairs(both()) do assert.same({ 2, 2 }, sums(answer)) end
      second:kill("TERM")
      assert.equal("exit", second:wait(PATIENCE))
      assert.same({}, front:errors())
    end)

    it("counts a hand-off once when another worker goes on with the record", function()
      start { workers = 2, more = [[
        location = /adds { content_by_lua_block {
          local dict, handed = ngx.shared.holdfast, 0
          for _, key in ipairs(dict:get_keys(0)) do
            local is_worker, value = key:find("^status:.* worker$"), dict:get(key)
            if is_worker then ngx.header.worker = value end
            if is_worker and ngx.var.arg_leaves then dict:delete(key) end
            handed = handed + (tostring(value):match("^(%d+) %d+$") or 0)
          end
          ngx.print(handed)
        } }
      ]] }
      local function adds() return front:get("/adds").headers.worker end
      local function handed() return front:get("/adds").body end
      local of_one = scans()
      state()
      of_one = scans() - of_one
      local lock = assert(client:lock("busy"):acquire())
      local waiter = patient()
      assert.truthy(process.wait_until(function()
        local answers = both()
        return answers[1].locks[1] and answers[2].locks[1]
          and answers[1].locks[1].waiters + answers[2].locks[1].waiters == 2
      end, PATIENCE))
      lock:release()
      assert.truthy(process.wait_until(function() return handed() == "1" end, PATIENCE))
      local first = adds()
      process.signal(tonumber(first), "KILL")
      assert.truthy(process.wait_until(function()
        local now = front:workers()
        return #now == 2 and tostring(now[1]) ~= first and tostring(now[2]) ~= first
      end, PATIENCE))
      front:get("/adds?leaves=1")
      assert.truthy(process.wait_until(adds, PATIENCE))
      wait_for_look(of_one)
      assert.are_not.equal(first, adds())
      assert.equal("1", handed())
      waiter:kill("TERM")
      assert.equal("exit", waiter:wait(PATIENCE))
    end)

    it("goes on after a client that hung up while the server was slow", function()
      start {}
      local early = assert(client:lock("early"):acquire())
      eventually("early", function() return true end)
      server:cli("CLIENT", "PAUSE", 2000)
      assert.truthy(process.wait_until(function()
        return not front:begin("/status?json"):finish(0.3) -- the view is fresh, or it hangs up
      end, PATIENCE))
      local late = assert(client:lock("late"):acquire())
      eventually("late", function() return true end)
      early:release()
      late:release()
      assert.same({}, front:errors())
    end)

    it("reads the locks before it is opened, from init_worker_by_lua on", function()
      start { http = "init_worker_by_lua_block { HOLDFAST.status { client = CLIENT } }" }
      wait_for_look(1)
      assert.same({}, front:errors())
    end)

    it("without a dict shows what its worker saw, and says so", function()
      start { dict = "" }
      assert.is_false(state().shared)
      local lock = assert(client:lock("busy"):acquire())
      local waiter = patient()
      eventually("busy", function(of) return of.waiters == 1 end)
      lock:release()
      assert.truthy(process.wait_until(function()
        return sums(state())[1] == 1
      end, PATIENCE))
      assert.same({ 1, 1 }, sums(state()))
      assert.matches('at%("alone"%)%.hidden = state%.shared', front:get("/status").body)
      waiter:kill("TERM")
      assert.equal("exit", waiter:wait(PATIENCE))
      assert.same({}, front:errors())
    end)

    it("shows read/write locks and semaphores, again and again, whatever prefix its client has", function()
      start { where = ('url = "%s", prefix = "app:"'):format(server:url()) }
      local rw = client:read_write_lock("app:rw")
      local other = holdfast.new { url = server:url(), name = "lua-owner" }
      local second = other:read_write_lock("app:rw")
      assert(rw:read():acquire())
      assert(second:read():acquire())
      local pool = client:semaphore("app:pool", { permits = 3 })
      local permit = assert(pool:acquire(2))
      local last = 0
      for _ = 1, 3 do
        local seen = eventually("app:rw", function(of) return of.name end)
        assert.same({ "read", 2, "lua-owner" }, { seen.mode, seen.readers, seen.name })
        seen = eventually("app:pool", function() return true end)
        assert.same({ 3, 1, 2 }, { seen.permits, seen.available, seen.holds })
        assert.is_nil(seen.owner)
        assert.truthy(process.wait_until(function()
          local now = state().time
          return now > last + 0.5 and now
        end, PATIENCE))
        last = state().time
      end
      rw:read():release()
      second:read():release()
      assert(rw:write():acquire())
      assert.equal(0, eventually("app:rw", function(of) return of.mode == "write" end).readers)
      permit:release()
      assert.truthy(process.wait_until(function() return not entry("app:pool") end, PATIENCE))
      rw:write():release()
      other:close()
      assert.same({}, front:errors())
    end)

    it("shows latches and the waiters of fair locks", function()
      start {}
      local latch = client:latch("gate")
      assert(latch:set(2))
      assert.is_nil(entry("gate"))
      local waits = command.start(server, { "latch", "wait", "gate" })
      local seen = eventually("gate", function() return true end)
      assert.same({ "latch", 2, 1 }, { seen.kind, seen.count, seen.waiters })
      assert.equal("holdfast latch delete gate", entry("gate", "&open=gate")["break"])
      assert(latch:count_down(2))
      assert.same({ "exit", 0 }, { waits:wait(PATIENCE) })
      assert.truthy(process.wait_until(function() return not entry("gate") end, PATIENCE))
      local booking = client:fair_lock("booking")
      assert(booking:acquire())
      assert.equal("lock", eventually("booking", function() return true end).kind)
      local waiter = process.lua {
        code = [[assert(require("holdfast").new(arg[1]):fair_lock("booking"):acquire(60)):release()]],
        args = { server:url() },
      }
      for _ = 1, 3 do
        seen = eventually("booking", function(of)
          return of.waiters == 1 and of.queue[1].pid == waiter.pid
        end)
        assert.equal("fair", seen.kind)
      end
      assert(booking:release())
      assert.same({ "exit", 0 }, { waiter:wait(PATIENCE) })
      assert.truthy(process.wait_until(function() return not entry("booking") end, PATIENCE))
      assert.same({}, front:errors())
    end)

    local function start_quorum(count)
      local servers, list = redis.several(count or 3), {}
      for i, each in ipairs(servers) do list[i] = ('"%s"'):format(each:url()) end
      start { where = ('mode = "quorum", servers = { %s }'):format(table.concat(list, ", ")) }
      return servers
    end

    it("shows the servers of a quorum, and its locks", function()
      local servers = start_quorum(4)
      local urls = {}
      for i, each in ipairs(servers) do urls[i] = each:url() end
      local quorum = holdfast.new { servers = urls, mode = "quorum", name = "four" }
      local lock = assert(quorum:lock("q"):acquire())
      local seen = eventually("q", function(of) return of.name end)
      assert.equal("four", seen.name)
      local members = state().members
      assert.equal(4, #members)
      assert.is_true(members[1].up)
      servers[1]:kill()
      assert.truthy(process.wait_until(function()
        return state().members[1].up == false
      end, PATIENCE))
      assert.truthy(entry("q"))
      local answer = state()
      assert.equal("server_down", answer.state)
      local down, up = answer.members[1], answer.members[2]
      assert.matches("connection refused", down.message)
      assert.same({ true, 2 }, { up.up, up.server, up.message })
      assert.is_true(up.seconds >= 0 and up.seconds < 10, up.seconds)
      lock:release()
      quorum:close()
      servers[3]:kill()
      assert.truthy(process.wait_until(function()
        return front:get("/status?json").status == 503
      end, PATIENCE))
      answer = state(nil, 503)
      assert.same({ "away", "2 of 4 servers answered" }, { answer.state, answer.trouble })
      front:stop("TERM")
      front = nil
      for _, each in ipairs(servers) do each:stop() end
    end)

    local UUID = "b983c153-7421-469a-addb-44fb92259a1b"

    -- Writes locks; the first `busy` of them have 150 waiters each.
    local function forge(count, busy)
      server:cli("EVAL", [[
        for i = 1, tonumber(ARGV[1]) do
          local key = ("many:%05d"):format(i)
          redis.call("HSET", key, ARGV[3] .. ":" .. i, 1)
          redis.call("PEXPIRE", key, 600000)
          for place = 1, i <= tonumber(ARGV[2]) and 150 or 0 do
            local waiter = ("1l%s:%d:1"):format(ARGV[3], 1000000 + place)
            redis.call("ZADD", "holdfast_queue:{" .. key .. "}", place, waiter)
          end
        end
      ]], "0", tostring(count), tostring(busy), UUID)
    end

    local LARGE = { KEYS = true, HGETALL = true, SMEMBERS = true, SORT = true }

    -- How many keys or members the command may visit; nil: one, or none.
    local function visits(args)
      local name, words = args[1]:upper(), table.concat(args, " "):upper()
      if LARGE[name] then return math.huge end
      if name == "SCAN" or name == "HSCAN" then return tonumber(words:match(" COUNT (%d+)")) or 10 end
      if name:find("^ZRANGE") then return tonumber(words:match(" LIMIT %d+ (%d+)$")) or 150 end
      if name == "LRANGE" then return args[4] + 1 - args[3] end
    end

    -- → the keys of all pages, as they come
    local function pages(query)
      local keys, from = {}, 0
      repeat
        local response = front:get("/status?json&from=" .. from .. query)
        assert.is_true(#response.body <= 40960, #response.body .. " bytes")
        local answer = dkjson.decode(response.body)
        assert.equal(from, answer.from)
        for _, lock in ipairs(answer.locks) do keys[#keys + 1] = lock.key end
        assert.equal(#keys < answer.count and #keys or nil, answer.next)
        from = answer.next
      until not from
      return keys
    end

    it("lists many locks in pages, to several viewers, in small commands", function()
      local count, busy = 300, 20
      start {}
      forge(count, busy)
      local monitor, viewers = server:monitor(), {}
      for i = 1, 3 do viewers[i] = front:begin("/status?json") end
      local first = ""
      for i = 1, 3 do
        local body = viewers[i]:finish().body
        assert.is_true(#body <= 40960, #body .. " bytes")
        first = first .. body
      end
      assert.truthy(first:find('"key":"many:', 1, true), "no rows at first")
      assert.truthy(process.wait_until(function()
        local now = state()
        return now.count == count and now.waiters == 150 * busy
      end, 60))
      assert.truthy(process.wait_until(function()
        return sums(state())[2] == 150 * busy
      end, PATIENCE))
      for asked, wanted in pairs {
        prefix = count, ["prefix=many:0000"] = 9, ["prefix=many:0002"] = 10, ["search=y:0000"] = 9,
        ["search=9"] = 57, ["search=many.0"] = 0,
      } do
        local keys = pages("&sort=key&" .. asked)
        assert.equal(wanted, #keys, asked)
        for i = 2, #keys do assert.is_true(keys[i - 1] < keys[i], "not in order") end
      end
      assert.equal(("many:%05d"):format(count), state("&sort=key&reverse").locks[1].key)
      assert.equal(5, #state().locks[1].queue)
      assert.equal(20, #state("&sort=key&open=many%3A00001").locks[1].queue)
      for _, each in ipairs(monitor:commands()) do
        assert.is_true((visits(each.args) or 1) <= 200, each.line)
      end
      monitor:close()
      server:cli("FLUSHALL")
      assert.same({}, front:errors())
    end)

    it("counts what it sees, whatever the server's clock and the queue do meanwhile", function()
      start {}
      local now = os.time() * 1e6
      local function hold(owner, token, place)
        server:cli("DEL", "k", "holdfast_queue:{k}")
        server:cli("HSET", "k", UUID .. ":" .. owner, 1)
        server:cli("PEXPIRE", "k", 600000)
        server:cli("SET", "redisson_lock_token:{k}", ("%.0f"):format(token))
        server:cli("ZADD", "holdfast_queue:{k}", ("%.0f"):format(place), "1l" .. UUID .. ":9:1")
        return eventually("k", function(of)
          return of.owner == UUID .. ":" .. owner and of.waiters == 1
        end)
      end
      hold(1, now - 60e6, now - 5e6)
      hold(2, now - 3600e6, now) -- the queue was empty meanwhile, the clock was set back
      local last = hold(1, 7, now + 3600e6) -- the counter is a new one
      assert.same({ 2, 1 }, sums(state()))
      assert.is_true(math.abs(os.time() - last.since) < 10, last.since)
      server:cli("FLUSHALL")
    end)

    it("says that a server is none, without an error of its own", function()
      for _, reply in ipairs { ":1\r\n", "*2\r\n$1\r\n0\r\n:5\r\n" } do
        local strange = fake.server { reply = reply, login = true }
        start { where = ('url = "%s"'):format(strange.url) }
        local shown = state(nil, 503)
        assert.matches("%w", shown.trouble)
        assert.equal("away", shown.state)
        front:stop("TERM")
        front = nil
        strange:stop()
      end
    end)

    it("is 503 while the server is away, with its age and what was seen last", function()
      start {}
      server:cli("HSET", "seen", UUID .. ":1", 1)
      server:cli("PEXPIRE", "seen", 600000)
      server:cli("ZADD", "holdfast_queue:{seen}", 1, "1l" .. UUID .. ":9:1")
      eventually("seen", function(of) return of.waiters == 1 end)
      server:kill()
      assert.truthy(process.wait_until(function()
        return front:get("/status?json").status == 503
      end, PATIENCE))
      local shown = state(nil, 503)
      assert.equal("away", shown.state)
      assert.matches("connection refused", shown.trouble)
      assert.is_true(shown.age > 0 and shown.age < 60)
      local then_ = shown.locks[1]
      assert.equal("seen", then_.key)
      local later
      assert.truthy(process.wait_until(function() -- all but the age is of the time that it was read
        later = state(nil, 503)
        return later.age > shown.age + 1
      end, PATIENCE))
      assert.is_true(math.abs(later.locks[1].ttl - then_.ttl) < 0.5, later.locks[1].ttl)
      assert.is_true(math.abs(later.locks[1].wait - then_.wait) < 0.5, later.locks[1].wait)
    end)

    it("orders by the longest wait, then by the longest hold", function()
      start {}
      local now = os.time()
      local function hold(key, owner, seconds, waits)
        server:cli("HSET", key, UUID .. ":" .. owner, 1)
        server:cli("PEXPIRE", key, 600000 - owner)
        server:cli("SET", "redisson_lock_token:{" .. key .. "}", ("%.0f"):format((now - seconds) * 1e6))
        if waits then server:cli("ZADD", "holdfast_queue:{" .. key .. "}", "1", "1l" .. UUID .. ":9:1") end
      end
      local function order(query)
        local list = {}
        for i, each in ipairs(state(query).locks) do list[i] = each.key end
        return table.concat(list, " ")
      end
      hold("late", 1, 10, true)
      eventually("late", function() return true end)
      hold("b", 2, 60)
      hold("a", 3, 3600)
      hold("later", 4, 7200, true)
      assert.truthy(process.wait_until(function() return #state().locks == 4 end, PATIENCE))
      assert.equal("late later a b", order())
      assert.equal("later a b late", order("&sort=held"))
      assert.equal("late b a later", order("&sort=held&reverse"))
      assert.equal("later late a b", order("&sort=waiters"))
      assert.equal("a b late later", order("&sort=key"))
      assert.equal("late b a later", order("&sort=holder"))
      server:cli("HSET", "none", UUID .. ":6", 1)
      server:cli("PEXPIRE", "none", 500000)
      assert.truthy(process.wait_until(function() return #state().locks == 5 end, PATIENCE))
      assert.equal("later a b late none", order("&sort=token"))
      assert.matches("^none ", order("&sort=ttl"))
      assert.matches(" none$", order("&sort=ttl&reverse"))
      server:cli("DEL", "none")
      assert.truthy(process.wait_until(function() return #state().locks == 4 end, PATIENCE))
      local seen = entry("a")
      assert.is_true(math.abs(state().time - 3600 - seen.since) < 10, seen.since)
      assert.is_nil(seen["break"])
      hold("-$(rm) 'x'", 5, 1)
      seen = eventually("-$(rm) 'x'", function() return true end)
      seen = entry(seen.key, "&open=-%24(rm)%20'x'")
      assert.equal([[holdfast break -- '-$(rm) '\''x'\''']], seen["break"])
      server:cli("FLUSHALL")
    end)

    -- A lock of `owner`, entered `holds` times, with a waiter for each of `places`.
    local function forge_lock(key, owner, holds, places)
      server:cli("HSET", key, UUID .. ":" .. owner, holds)
      server:cli("PEXPIRE", key, 600000)
      for place = 1, places or 0 do
        server:cli("ZADD", "holdfast_queue:{" .. key .. "}", place,
          ("1l%s:%d:1"):format(UUID, 1000 * owner + place))
      end
    end

    it("shows what is known of a lock, and as much of a long key as fits", function()
      start {}
      server:cli("SET", "holdfast_client:" .. UUID, "web-3 4711 billing")
      local fits, long = ("f"):rep(1024), ("l"):rep(1025)
      for i, key in ipairs { "plain", "a\1b", fits, long } do forge_lock(key, i, i) end
      assert.truthy(process.wait_until(function() return state().count == 4 end, PATIENCE))
      local answer = state("&sort=key&open=plain&open=a%01b&open=" .. fits .. "&open=" .. long)
      local shown = {}
      for _, each in ipairs(answer.locks) do shown[each.key] = each end
      local seen = shown.plain
      assert.same({ UUID .. ":1", "web-3", 4711, "billing", 1, 0 },
        { seen.owner, seen.host, seen.pid, seen.name, seen.holds, seen.waiters })
      assert.same({ "holdfast break plain" },
        { seen["break"], seen.link, seen.key_size, seen.wait })
      assert.is_true(seen.ttl > 500 and seen.ttl <= 600, seen.ttl)
      seen = shown["a\1b"]
      assert.same({ 2, "a%01b" }, { seen.holds, seen.link })
      assert.matches("^holdfast break ", seen["break"])
      seen = shown[fits]
      assert.same({ "holdfast break " .. fits }, { seen["break"], seen.key_size })
      seen = shown[long:sub(1, 1024)]
      assert.same({ 4, 1025 }, { seen.holds, seen.key_size, seen["break"] })
      assert.is_true(answer.complete)
      assert.is_nil(answer.trouble)
      assert.is_true(answer.age < 20, answer.age)
      assert.equal("unix:" .. server.path, answer.server)
      local monitor = server:monitor()
      for i = 1, 50 do forge_lock(("%02d"):format(i):rep(500), i, 1) end
      assert.truthy(process.wait_until(function() return state().count == 54 end, PATIENCE))
      assert.equal(54, #pages("&sort=key"))
      assert.equal(0, monitor:count("GET")) -- the name is known for a while
      monitor:close()
      server:cli("FLUSHALL")
    end)

    it("has the age of what it shows, and goes through all keys without another request", function()
      start { dict = "" }
      local from = process.now()
      assert.truthy(process.wait_until(function()
        local age, seconds = state().age, process.now() - from
        return seconds > 1 and age < seconds / 2
      end, PATIENCE))
      front:stop("TERM")
      start { dict = "" }
      forge(12000, 0)
      if not state().complete then
        local before = scans()
        assert.truthy(process.wait_until(function() return scans() > before end, PATIENCE))
      end
      server:cli("FLUSHALL")
    end)

    it("says how long each has waited, and the longest wait for any lock", function()
      start {}
      forge_lock("p:one", 1, 1, 2)
      eventually("p:one", function(of) return of.waiters == 2 end)
      for i = 2, 9 do forge_lock("q:" .. i, i, 1, 1) end
      forge_lock("p:free", 10, 1)
      assert.truthy(process.wait_until(function() return state().waiters == 10 end, PATIENCE))
      server:cli("ZADD", "holdfast_queue:{p:one}", 3, "1l" .. UUID .. ":1009:1")
      local seen = eventually("p:one", function(of) return of.waiters == 3 and #of.queue == 3 end)
      assert.is_true(seen.queue[1].seconds > seen.queue[3].seconds)
      assert.equal(seen.queue[1].seconds, seen.wait)
      assert.equal(UUID .. ":1001", seen.queue[1].owner:match("^(.-:%d+)"))
      local answer = state("&prefix=p")
      assert.same({ 2, 3 }, { answer.count, answer.waiters })
      local longest = answer.locks[1].wait
      answer = state("&prefix=q")
      assert.same({ 8, 8 }, { answer.count, answer.waiters })
      for _, each in ipairs(answer.locks) do assert.is_true(each.wait < answer.longest_wait) end
      assert.is_true(answer.longest_wait >= longest)
      answer = state("&search=free")
      assert.same({ 1, 0 }, { answer.count, answer.waiters, answer.locks[1].wait })
      server:cli("DEL", "holdfast_queue:{p:one}")
      for i = 2, 9 do server:cli("DEL", "holdfast_queue:{q:" .. i .. "}") end
      assert.truthy(process.wait_until(function()
        local now = state()
        return now.waiters == 0 and now.longest_wait == nil
      end, PATIENCE))
      server:cli("FLUSHALL")
    end)

    it("counts the wait of a waiter that comes again from when it came again", function()
      start {}
      for _, goes in ipairs { "waiter", "lock", "" } do
        forge_lock("booking", 1, 1)
        server:cli("RPUSH", "redisson_lock_queue:{booking}", UUID .. ":7")
        local seen = eventually("booking", function(of) return of.waiters == 1 end)
        assert.is_true(seen.queue[1].seconds < 0.5, seen.queue[1].seconds)
        if goes ~= "" then eventually("booking", function(of) return of.wait > 0.5 end) end
        server:cli("DEL", "redisson_lock_queue:{booking}")
        if goes == "lock" then server:cli("DEL", "booking") end
        assert.truthy(process.wait_until(function() return state().waiters == 0 end, PATIENCE))
      end
      server:cli("SET", "booking", "something else")
      assert.truthy(process.wait_until(function() return state().count == 0 end, PATIENCE))
      server:cli("FLUSHALL")
    end)

    it("takes arguments that come twice, without a value or as none that it knows", function()
      start {}
      for i, key in ipairs { "a", "b", "c" } do forge_lock(key, i, 1) end
      assert.truthy(process.wait_until(function() return state().count == 3 end, PATIENCE))
      for query, wanted in pairs {
        ["&search=a&search=b"] = "a b c", ["&prefix&search"] = "a b c",
        ["&sort=key&sort=ttl"] = "a b c", ["&sort=none"] = "a b c",
        ["&sort=key&from=1"] = "b c", ["&sort=key&from=-1"] = "a b c",
        ["&sort=key&from=1e0"] = "a b c", ["&sort=key&from=1&from=2"] = "a b c",
        ["&sort=key&from=3"] = "", ["&sort=key&from=999999999"] = "",
        ["&sort=key&reverse=1"] = "c b a",
      } do
        local keys, answer = {}, state(query)
        for i, each in ipairs(answer.locks) do keys[i] = each.key end
        if not query:find("sort=key&[fr]") then table.sort(keys) end
        assert.message(query).equal(wanted, table.concat(keys, " "))
        assert.message(query).same({ 3, nil }, { answer.count, answer.next })
      end
      local opened = {}
      for _, each in ipairs(state("&sort=key&open=a&open=c").locks) do
        opened[#opened + 1] = each["break"] and each.key
      end
      assert.equal("a c", table.concat(opened, " "))
      server:cli("FLUSHALL")
    end)

    it("shows the last ten losses, the newest first, with a dict and without one", function()
      for _, dict in ipairs { "", false } do
        start { dict = dict or nil, more = [[ location = /lose_many { content_by_lua_block {
          local other = HOLDFAST.new { url = CLIENT_URL, driver = "posix" }
          for i = 1, 11 do
            local lock = CLIENT:lock("lost " .. i, { class = i == 11 and "a b" or "" })
            assert(lock:acquire())
            other:lock("lost " .. i):force_release()
            lock:check()
          end
          other:close()
          ngx.print(ngx.worker.pid())
        } } ]] }
        state() -- from now on it listens
        local pid = tonumber(front:get("/lose_many").body)
        local answer
        assert.truthy(process.wait_until(function()
          answer = state()
          return #answer.lost == 10 and answer.losses.deleted == 11
        end, PATIENCE))
        for i, loss in ipairs(answer.lost) do
          assert.same({ "lost " .. 12 - i, "deleted", i == 1 and "a b" or "", pid },
            { loss.key, loss.reason, loss.class, loss.pid })
          assert.matches("^%x+%-.*:%d+", loss.owner)
        end
        assert.same({ "losses", dict == false, 0 },
          { answer.state, answer.shared, answer.losses.expired })
        front:stop("TERM")
        front = nil
      end
    end)

    it("shows a deadlock, with the command that ends it, until it is over", function()
      start { more = [[ location = /some { content_by_lua_block {
        HOLDFAST.status { client = CLIENT, pattern = "q*" }
      } } ]] }
      local some
      local function look_at_some() some = dkjson.decode(front:get("/some?json").body) end
      forge_lock("q", 1, 1, 2)
      local children = {}
      for i, keys in ipairs { { "a", "b" }, { "b", "a" } } do
        children[i] = process.lua {
          code = [[
            local client = require("holdfast").new { url = arg[1], name = "of-" .. arg[2] }
            local held, wanted = assert(client:lock(arg[2]):acquire(0)), client:lock(arg[3])
            print "holds"
            io.stdout:flush()
            repeat until wanted:is_locked()
            wanted:acquire(60)
            held:release()
          ]],
          args = { server:url(), keys[1], keys[2] },
        }
        assert(children[i]:wait_output("holds", PATIENCE), children[i]:output())
      end
      local answer
      assert.truthy(process.wait_until(function()
        look_at_some()
        answer = state()
        return answer.state == "deadlock"
      end, PATIENCE), answer.state)
      look_at_some()
      assert.same({ 1, "q", "well", 0 },
        { #some.locks, some.locks[1].key, some.state, #some.deadlocks })
      assert.equal(1, #answer.deadlocks)
      local cycle = answer.deadlocks[1]
      assert.equal(2, #cycle)
      assert.equal("holdfast break " .. cycle[1].key, cycle[1]["break"])
      assert.is_nil(cycle[2]["break"])
      for i, wait in ipairs(cycle) do
        local number = wait.key == "a" and 2 or 1
        local waits, holds = children[number], children[3 - number]
        assert.same({ waits.pid, holds.pid, "of-" .. wait.key }, {
          wait.pid, wait.holder_pid, wait.holder_name,
        })
        local other = cycle[3 - i]
        assert.same({ other.owner:sub(1, 36), other.host, other.name },
          { wait.holder:sub(1, 36), wait.holder_host, wait.holder_name })
      end
      for _, child in ipairs(children) do child:stop() end
      server:cli("FLUSHALL")
      assert.truthy(process.wait_until(function()
        answer = state()
        return answer.state == "well" and #answer.deadlocks == 0
      end, PATIENCE), answer.state)
    end)

    it("only reads, and says that it must be protected", function()
      start {}
      assert.equal(405, front:begin("/status", { method = "POST", body = "x" }):finish().status)
      assert.equal(200, front:get("/status", { method = "HEAD" }).status)
      local response = front:get("/status")
      for name, value in pairs { ["cache-control"] = "no-store", ["referrer-policy"] = "no-referrer",
          ["x-content-type-options"] = "nosniff" } do
        assert.equal(value, response.headers[name])
      end
      assert.matches("^text/html", response.headers["content-type"])
      assert.matches("protect it", response.body)
      assert.is_nil(response.body:find('%s[sh]r[ce]f?="http'))
      local policy = response.headers["content-security-policy"]
      for _, name in ipairs { "css", "js" } do
        local path = "lua/holdfast/status_page/page." .. name
        local file = assert(io.open(path))
        assert.truthy(response.body:find(file:read("*a"), 1, true), path)
        file:close()
        local pipe = io.popen("openssl dgst -sha256 -binary " .. path .. " | openssl base64")
        assert.truthy(policy:find("-src 'sha256-" .. pipe:read("*l") .. "'", 1, true), policy)
        pipe:close()
      end
      assert.is_nil(policy:find("unsafe", 1, true))
      assert.is_nil(response.body:find("innerHTML", 1, true))
      local monitor = server:monitor()
      client:with_lock("seen", function() state() end)
      for _, entry_of in ipairs(monitor:commands()) do
        local name = entry_of.args[1]:upper()
        if not entry_of.script and name:find("^SET$") or name == "DEL" and not entry_of.script then
          assert.truthy(entry_of.args[2]:find("^holdfast_client:"), entry_of.line)
        end
      end
      monitor:close()
    end)

    local function lock_many(of)
      for from = 1, 10000, 500 do
        of:cli("EVAL", [[
          for i = ARGV[1], ARGV[1] + 499 do
            redis.call('HSET', 'many:' .. i, 'b983c153-7421-869a-addb-44fb92259a1b:' .. i, 1)
            redis.call('PEXPIRE', 'many:' .. i, 600000)
          end]], 0, from)
      end
      of:cli("CONFIG", "SET", "slowlog-log-slower-than", 5000)
    end

    -- What took longer by the server's clock, in the best of some rounds: one that has no core now
    -- stands still whatever it does, but not each time.
    local function slowest(of, look)
      local slow
      for _ = 1, 8 do
        of:cli("SLOWLOG", "RESET")
        look()
        slow = of:cli("SLOWLOG", "GET", 10)
        if #slow == 0 then return nil end
      end
      return ("%d us: %s"):format(slow[1][3], table.concat(slow[1][4], " "))
    end

    it("does not stop the server for 5 ms with 10,000 locks, nor does the command #check",
      function()
      start {}
      lock_many(server)
      assert.matches("us: EVAL", slowest(server, function() -- it would be noticed
        server:cli("EVAL", "for i = 1, 1e7 do end", 0)
      end))
      assert.truthy(process.wait_until(function() return state().count == 10000 end, 60))
      assert.is_nil(slowest(server, function()
        local count = state().count
        assert.equal(10000, count)
      end))
      for _, words in ipairs { { "ls" }, { "deadlocks" },
          { "top", "--interval", "0.1", "many:1*" } } do
        assert.is_nil(slowest(server, function()
          assert.same({ "exit", 0 }, { command.start(server, words):wait(120) })
        end), words[1])
      end
    end)

    it("reads the 10,000 locks of a quorum in parts #check", function()
      local servers = start_quorum()
      for _, each in ipairs(servers) do lock_many(each) end
      local first = state()
      assert.is_true(first.count < 10000, "one request looked at everything")
      assert.is_nil(first.trouble)
      assert.truthy(process.wait_until(function() return state().count == 10000 end, 120))
      for _, each in ipairs(servers) do
        state()
        assert.is_nil(each:cli("INFO", "commandstats"):find("cmdstat_type:", 1, true))
      end
      for _, each in ipairs(servers) do
        each:cli("EVAL", "for i = 1, 9000 do redis.call('DEL', 'many:' .. i) end", 0)
      end
      assert.truthy(process.wait_until(function() return state().count == 1000 end, 120))
      front:stop("TERM")
      front = nil
      for _, each in ipairs(servers) do each:stop() end
    end)
  end)
end)
