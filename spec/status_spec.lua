-- What an operator sees under ngx_lua: the sums of all workers, and the live page.

local nginx = require "spec.support.nginx"
local process = require "spec.support.process"
local redis = require "spec.support.redis"

if not nginx.is_there() then return end

local command = require "spec.support.command"
local core = require "holdfast.core"
local dkjson = require "dkjson" -- busted's own
local fake = require "spec.support.fake"
local holdfast = require "holdfast"
local resp = require "spec.support.resp"

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

describe("under ngx_lua", function()
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
    it("are the exact sums over two workers, and survive a reload", function()
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
      work(20) -- the workers are asked to end before they add this to the sums
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

    it("include the counts of a client that was closed right after its use", function()
      start {}
      for i = 1, 5 do
        assert.equal("done", front:get("/once").body)
        assert.truthy(process.wait_until(function() return acquired() == i end, PATIENCE),
          ("%s of %d"):format(acquired(), i))
      end
    end)

    it("include counts and losses of clients with the blocking driver", function()
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
      comes_to_say 'holdfast_losses_total{class="blocking",reason="deleted"} 1\n' -- without a call of holdfast
      for _ = 1, 5 do front:get("/block") end
      front:reload()
      comes_to_say 'holdfast_acquires_total{class="blocking",outcome="acquired"} 11\n' -- and the new worker
      assert.same({}, front:errors())
    end)

    it("use the class of an idempotent request, whose listener receives its events", function()
      start {}
      assert.equal("paid", front:get("/paid").body)
      assert.truthy(process.wait_until(function()
        return front:get("/noted").body == "acquired pay;released pay;"
      end, PATIENCE), front:get("/noted").body)
      assert.truthy(process.wait_until(function()
        return front:get("/metrics").body:find('holdfast_releases_total{class="pay"} 1', 1, true)
      end, PATIENCE))
    end)

    it("omit the number of holds, and name the missing dict", function()
      start {}
      front:get("/work")
      assert.truthy(process.wait_until(function() return acquired() == 1 end, PATIENCE))
      local text = front:get("/metrics").body
      assert.is_nil(text:find("holdfast_holds", 1, true))
      assert.truthy(text:find('holdfast_losses_total{class="orders",reason="deleted"} 0\n', 1, true))
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
      assert.matches("content_by_lua%b():%d+: holdfast.metrics: there is",
        table.concat(front:errors(), "\n"))
    end)

    it("count losses by class, which the page adds up by reason", function()
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

    it("do not change other entries of the dict", function()
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

    local PARSERS = {
      openmetrics = "from prometheus_client.openmetrics.parser import text_fd_to_metric_families as read\n",
      text = "from prometheus_client.parser import text_fd_to_metric_families as read\n",
    }

    -- → how many families Prometheus's own parser finds
    local function families(text, parser)
      local directory = process.directory()
      local file = assert(io.open(directory .. "/metrics", "w"))
      file:write(text)
      file:close()
      local child = process.start { "/usr/bin/python3", "-c", "import sys\n" .. PARSERS[parser]
        .. "print(len(list(read(open(sys.argv[1])))))", directory .. "/metrics", env = { LD_PRELOAD = false } }
      assert.same({ "exit", 0 }, { child:wait(PATIENCE) }, child:output())
      process.remove(directory)
      return tonumber(child:output())
    end

    it("are accepted by Prometheus's parsers in the requested format", function()
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
      local OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
      local TEXT = "text/plain; version=0.0.4; charset=utf-8"
      local accepted = {
        { "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1", OPENMETRICS },
        { "application/openmetrics-text; version=0.0.1", OPENMETRICS },
        { "Application/OpenMetrics-Text , text/plain", OPENMETRICS },
        { "text/plain, application/openmetrics-text;q=0.9", TEXT },
        { "application/openmetrics-text;q=0, */*", TEXT },
        { "text/plain;version=0.0.4", TEXT }, { "*/*", TEXT }, { "", TEXT }, { nil, TEXT },
      }
      for i = 1, 9 do
        local accept, format = accepted[i][1], accepted[i][2]
        local response = front:get("/metrics", { headers = { Accept = accept } })
        assert.equal(format, response.headers["content-type"], accept)
        local is_text = format == TEXT
        assert.equal(not is_text, response.body:find("# EOF\n$") ~= nil)
        local named = is_text and "holdfast_releases_total" or "holdfast_releases"
        local line = ("# TYPE %s counter\n"):format(named)
        assert.truthy(response.body:find(line, 1, true), response.body)
        if i == 1 or i == 9 then
          assert.is_true(families(response.body, is_text and "text" or "openmetrics") >= 10)
        end
      end
    end)

    it("keep their values when the dict is full, and count and log what does not fit", function()
      start { dict = "lua_shared_dict holdfast 64k;", more = [[
        location = /other { content_by_lua_block { for i = 1, 20 do
          CLIENT:with_lock("of " .. i, { class = "class" .. i }, function() end)
        end
      } } ]] }
      local count = 0
      local function work()
        front:get("/work")
        count = count + 1
        assert.truthy(process.wait_until(function() return acquired() == count end, PATIENCE))
      end
      local openmetrics = { headers = { Accept = "application/openmetrics-text" } }
      local function text() return front:get("/metrics", openmetrics).body end
      work()
      assert.equal("0", text():match("holdfast_dropped_series_total (%d+)"))
      for _ = 1, 3 do
        front:get("/other")
        work()
      end
      local dropped
      assert.truthy(process.wait_until(function()
        dropped = tonumber(text():match("holdfast_dropped_series_total (%d+)"))
        return dropped > 0
      end, PATIENCE))
      assert.equal("3", text():match('holdfast_releases_total{class="class1"} (%d+)'))
      assert.is_nil(text():find('class="class20"', 1, true))
      assert.is_true(families(text(), "openmetrics") >= 10) -- the parser refuses an incomplete histogram
      work()
      assert.equal(dropped, tonumber(text():match("holdfast_dropped_series_total (%d+)"))) -- each counts once
      local errors = front:errors()
      assert.equal(1, #errors, table.concat(errors, "\n"))
      assert.matches("lua_shared_dict holdfast: no memory is left for .*holdfast_dropped_series_total", errors[1])
    end)
  end)

  describe("the data that the status page stores in the shared dict", function()
    local FILL = [[
      location = /fill { content_by_lua_block {
        local dict, i = ngx.shared.holdfast, 0
        repeat i = i + 1 until not dict:safe_set("of others " .. i, ("x"):rep(40))
        ngx.print(i - 1)
      } }
      location = /left { content_by_lua_block {
        local count = 0
        for _, name in ipairs(ngx.shared.holdfast:get_keys(0)) do
          if name:find("^of others ") then count = count + 1 end
        end
        ngx.print(count)
      } }
    ]]

    local function has_points()
      for _, point in ipairs(dkjson.decode(front:get("/status?json").body).points) do
        if point.waiting then return true end
      end
      return false
    end

    it("evicts nothing from a full dict, and logs once what to do", function()
      start { dict = "lua_shared_dict holdfast 32k;", more = FILL }
      local filled = front:get("/fill").body
      assert.is_true(tonumber(filled) > 10)
      for _ = 1, 3 do assert.equal(200, front:get("/status?json").status) end
      front:get("/lose")
      assert.equal(200, front:get("/status?json").status)
      assert.equal(filled, front:get("/left").body)
      local said = 0
      for _, line in ipairs(front:errors()) do
        if line:find('give the page a dict of its own with "lua_shared_dict holdfast_status 1m;"', 1, true) then said = said + 1 end
      end
      assert.equal(1, said)
    end)

    it("uses its own dict if there is one, whether or not the metrics' dict is full", function()
      start { dict = "lua_shared_dict holdfast 32k; lua_shared_dict holdfast_status 1m;", more = FILL }
      local filled = front:get("/fill").body
      assert.truthy(process.wait_until(has_points, PATIENCE))
      assert.equal(filled, front:get("/left").body)
      assert.is_true(dkjson.decode(front:get("/status?json").body).shared)
    end)
  end)

  it("a loss is reported to on_lost and on_event without a further call", function()
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

  it("events are delivered after a request ended during one, and listeners may wait", function()
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
      process.sleep(0.2) -- some looks of the client's task come before a request
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

    -- Returns the greatest number of waiters in the answer's points.
    local function most_waiting(answer)
      local most = 0
      for _, point in ipairs(answer.points) do most = math.max(most, point.waiting or 0) end
      return most
    end

    it("shows locks held by a job, by Java and by Lua, with holders and waiters", function()
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
      assert.equal(120, #points)
      assert.is_nil(points[1].waiting) -- nginx did not look then
      assert.equal(1, most_waiting(state()))
      job:kill("TERM")
      job:wait(PATIENCE)
      assert.same({}, front:errors())
    end)

    -- Returns how often the server has been asked for keys.
    local function scans()
      local info = server:cli("INFO", "commandstats")
      return tonumber(info:match("cmdstat_scan:calls=(%d+)") or 0)
    end

    -- Returns how often nginx has searched the queues: each time it asks four times for the
    -- channels of latches.
    local function searches()
      local info = server:cli("INFO", "commandstats")
      return (tonumber(info:match("cmdstat_pubsub|channels:calls=(%d+)")) or 0) / 4
    end

    -- Waits until nginx has finished a look without a request.
    local function wait_for_look()
      local from = searches()
      assert.truthy(process.wait_until(function() return searches() >= from + 2 end, 60),
        "nginx does not look while the page is closed")
    end

    -- → the answers of two workers
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

    local function patient()
      return command.start(server, { "run", "busy", "--", "sleep", "600" })
    end

    it("shows the same in each worker, including losses while it was closed", function()
      start { workers = 2 }
      assert.is_true(state().shared)
      both() -- each worker listens for losses from now on
      assert.equal("lost", front:get("/lose").body)
      local lock = assert(client:lock("busy"):acquire())
      local first = patient()
      assert.truthy(process.wait_until(function() return lock:info().waiters == 1 end, PATIENCE))
      local second = patient()
      assert.truthy(process.wait_until(function() return lock:info().waiters == 2 end, PATIENCE))
      local from = process.now()
      wait_for_look()
      lock:release()
      wait_for_look()
      assert.truthy(process.wait_until(function()
        local answers = both()
        local counted = answers[1].losses.deleted == 1 and answers[2].losses.deleted == 1
        return counted and answers[1].lost[1] and answers[2].lost[1]
      end, PATIENCE))
      local for_seconds = process.now() - from
      for _, answer in ipairs(both()) do
        assert.equal(2, most_waiting(answer))
        local loss = answer.lost[1]
        assert.same({ "lost", "deleted", "orders", 1 }, { loss.key, loss.reason, loss.class, #answer.lost })
        assert.is_true(math.abs(loss.time - answer.time) < 60)
        assert.equal("losses", answer.state)
        local queue = answer.locks[1].queue
        assert.equal(second.pid, queue[1].pid)
        assert.is_true(queue[1].seconds >= for_seconds - 2, -- workers share an answer for a second
          ("%s, but %s"):format(queue[1].seconds, for_seconds))
      end
      for _, each in ipairs { first, second } do
        each:kill("TERM")
        assert.equal("exit", each:wait(PATIENCE))
      end
      assert.same({}, front:errors())
    end)

    it("lets one worker read the server for all of them", function()
      start { workers = 3, where = ('url = "%s"'):format(server:tcp_url()) }
      both()
      local monitor, seen = server:monitor(), {}
      assert.truthy(process.wait_until(function()
        state()
        return monitor:count("SCAN") >= 12 -- at least three looks
      end, PATIENCE))
      for _, each in ipairs(monitor:commands()) do
        if each.args[1]:upper() == "SCAN" then seen[each.source] = true end
      end
      monitor:close()
      assert.truthy(next(seen))
      assert.is_nil(next(seen, (next(seen))))
    end)

    it("still updates after a viewer disconnected while the server was slow", function()
      start {}
      local early = assert(client:lock("early"):acquire())
      eventually("early", function() return true end)
      server:cli("CLIENT", "PAUSE", 2000)
      assert.truthy(process.wait_until(function()
        return not front:begin("/status?json"):finish(0.3) -- asks until no view is fresh, and hangs up then
      end, PATIENCE))
      local late = assert(client:lock("late"):acquire())
      eventually("late", function() return true end)
      early:release()
      late:release()
      assert.same({}, front:errors())
    end)

    it("reads the locks before it is first opened if init_worker_by_lua calls it", function()
      start { http = "init_worker_by_lua_block { HOLDFAST.status { client = CLIENT } }" }
      wait_for_look()
      assert.same({}, front:errors())
    end)

    it("without a dict shows what its worker saw, and says so", function()
      start { dict = "" }
      assert.is_false(state().shared)
      local lock = assert(client:lock("busy"):acquire())
      local waiter = patient()
      eventually("busy", function(of) return of.waiters == 1 end)
      lock:release()
      eventually("busy", function(of) return of.waiters == 0 end)
      assert.equal(1, most_waiting(state()))
      assert.matches('at%("alone"%)%.hidden = state%.shared', front:get("/status").body)
      waiter:kill("TERM")
      assert.equal("exit", waiter:wait(PATIENCE))
      assert.same({}, front:errors())
    end)

    it("shows read/write locks and semaphores whatever key prefix its client has", function()
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
      local seen = eventually("gate", function(of) return of.waiters == 1 end)
      assert.same({ "latch", 2 }, { seen.kind, seen.count })
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

    it("shows the servers and locks of a quorum", function()
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
      assert.equal("well", state().state)
      servers[1]:kill()
      assert.truthy(process.wait_until(function()
        return state().members[1].up == false
      end, PATIENCE))
      assert.truthy(entry("q"))
      local answer = state()
      assert.equal("server_down", answer.state)
      for i, member in ipairs(answer.members) do
        assert.same({ i, i > 1 }, { member.server, member.up })
        assert.is_true(member.seconds >= 0 and member.seconds < PATIENCE)
        if i > 1 then assert.is_nil(member.message) end
      end
      assert.matches("connection refused", answer.members[1].message)
      lock:release()
      quorum:close()
      servers[2]:kill()
      assert.truthy(process.wait_until(function()
        return front:get("/status?json").status == 503
      end, PATIENCE))
      answer = state(nil, 503)
      assert.same({ "away", "2 of 4 servers answered" }, { answer.state, answer.trouble })
      front:stop("TERM")
      front = nil
      for _, each in ipairs(servers) do each:stop() end
    end)

    local UUID = "b983c153-7421-869a-addb-44fb92259a1b"

    -- Returns the place of a waiter that has waited for `seconds`.
    local function place(seconds)
      local time = server:cli("TIME")
      return time[1] * 1e6 + time[2] - (seconds or 0) * 1e6
    end

    -- Writes locks; the first `busy` of them have 150 waiters each.
    local function forge(count, busy)
      server:cli("EVAL", [[
        for i = 1, tonumber(ARGV[1]) do
          local key = ("many:%05d"):format(i)
          redis.call("HSET", key, ARGV[3] .. ":" .. i, 1)
          redis.call("PEXPIRE", key, 600000)
          for place = 1, i <= tonumber(ARGV[2]) and 150 or 0 do
            local waiter = ("1l%s:%d:1"):format(ARGV[3], 1000000 + place)
            redis.call("ZADD", "holdfast_queue:{" .. key .. "}", ARGV[4] + place, waiter)
          end
        end
      ]], "0", tostring(count), tostring(busy), UUID, ("%.0f"):format(place()))
    end

    local LARGE = { KEYS = true, HGETALL = true, SMEMBERS = true, SORT = true }

    -- Returns how many keys or members the command may visit, or nil for at most one.
    local function visits(args)
      local name, words = args[1]:upper(), table.concat(args, " "):upper()
      if LARGE[name] then return math.huge end
      if name == "SCAN" or name == "HSCAN" then return tonumber(words:match(" COUNT (%d+)")) or 10 end
      if name:find("^ZRANGE") then return tonumber(words:match(" LIMIT %d+ (%d+)$")) or 150 end
      if name == "LRANGE" then return args[4] + 1 - args[3] end
    end

    -- → the keys of all pages, in order
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

    it("lists many locks in pages, for several viewers, with small commands", function()
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
        return most_waiting(state()) == 150 * busy
      end, PATIENCE))
      for asked, wanted in pairs {
        prefix = count, ["prefix=many:0000"] = 9, ["prefix=many:0002"] = 10, ["search=y:0000"] = 9,
        ["search=9"] = 57, ["search=many.0"] = 0, ["prefix=any:0"] = 0,
      } do
        local keys = pages("&sort=key&" .. asked)
        assert.equal(wanted, #keys, asked)
        for i = 2, #keys do assert.is_true(keys[i - 1] < keys[i], "not in order") end
      end
      assert.equal(("many:%05d"):format(count), state("&sort=key&reverse").locks[1].key)
      assert.equal(5, #state().locks[1].queue)
      assert.equal(20, #state("&sort=key&open=many%3A00001").locks[1].queue)
      for _, each in ipairs(monitor:commands()) do
        assert.is_true((visits(each.args) or 1) <= 500, each.line)
      end
      monitor:close()
      server:cli("FLUSHALL")
      assert.same({}, front:errors())
    end)

    it("skips names that do not fit in one reply, and shows the other locks", function()
      start {}
      local owner, mib = "11111111-2222-3333-4444-555555555555:1", ("a"):rep(2 ^ 20)
      local function put(key)
        server:cli("HSET", key, owner, 1)
        server:cli("PEXPIRE", key, 600000)
      end
      put "good"
      put ""
      for i = 1, 5 do
        put(i .. mib:sub(2))
        server:cli("ZADD", "holdfast_queue:{good}", i, "1l" .. i .. mib)
      end
      local good = eventually("good", function() return state().count == 6 end)
      assert.equal(owner, good.owner)
      assert.is_true(#good.queue > 0)
      assert.equal(1, state("&search=goo").count)
      assert.equal(5, state("&search=" .. ("a"):rep(100)).count)
      assert.truthy(process.wait_until(function()
        return front:get("/status?json").body:find('"complete":true', 1, true)
      end, PATIENCE), "no round ends")
      assert.same({}, front:errors())
      server:cli("FLUSHALL")
    end)

    -- Short in make test, long in make fuzz. The next round through the locks begins at most 30 s
    -- after a slow one.
    it("shows valid locks, whatever data is on the server", function()
      start {}
      local hostile = require "spec.support.hostile"
      local random = hostile.random(tonumber(os.getenv "HOLDFAST_HOSTILE_SEED") or 1)
      local till, count = core.now() + (tonumber(os.getenv "HOLDFAST_HOSTILE_SECONDS") or 1), 0
      repeat
        count = count + 1
        hostile.fill(server, random, "good" .. count)
        local shown = ('"key":"good%d"'):format(count)
        assert.is_truthy(process.wait_until(function()
          return front:get("/status?json").body:find(shown, 1, true)
        end, 30 + PATIENCE), shown)
        assert.same({}, front:errors())
      until core.now() > till
      server:cli("FLUSHALL")
    end)

    it("searches in linear time, however long the word is", function()
      local finder = require("holdfast.status_json").finder
      local random = require("spec.support.hostile").random(1)
      local function any(most)
        local parts = {}
        for i = 1, random:number(most) do parts[i] = ("ab"):sub(random:number(2)):sub(1, 1) end
        return table.concat(parts)
      end
      for _ = 1, 3000 do
        local text, word = any(60), any(22)
        assert.equal(text:find(word, 1, true) ~= nil, finder(word)(text))
      end
      assert.is_true(finder("")("any"))
      assert.is_true(finder("ORDER")("an Order:7"))
      assert.is_true(finder("order")("AN ORDER"))
      assert.is_false(finder("Ordo")("an Order"))
      local text = ("a"):rep(1000000)
      local function seconds(size)
        local has, from = finder(("a"):rep(size) .. "b"), os.clock()
        assert.is_false(has(text))
        return os.clock() - from
      end
      assert.is_true(seconds(20000) < 10 * seconds(20) + 0.1)
    end)

    it("says that the address is not a Redis server, without failing", function()
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

    it("answers 503 while the server is down, with the last data and its age", function()
      start {}
      server:cli("HSET", "seen", UUID .. ":1", 1)
      server:cli("PEXPIRE", "seen", 600000)
      server:cli("ZADD", "holdfast_queue:{seen}", ("%.0f"):format(place()), "1l" .. UUID .. ":9:1")
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
      assert.truthy(process.wait_until(function() -- everything but the age is from the last reading
        later = state(nil, 503)
        return later.age > shown.age + 1
      end, PATIENCE))
      assert.is_true(math.abs(later.locks[1].ttl - then_.ttl) < 0.5, later.locks[1].ttl)
      assert.is_true(math.abs(later.locks[1].wait - then_.wait) < 0.5, later.locks[1].wait)
    end)

    it("sorts by longest wait, then by longest hold", function()
      start {}
      local now = os.time()
      local function hold(key, owner, seconds, waits)
        server:cli("HSET", key, UUID .. ":" .. owner, 1)
        server:cli("PEXPIRE", key, 600000 - owner)
        server:cli("SET", "redisson_lock_token:{" .. key .. "}", ("%.0f"):format((now - seconds) * 1e6))
        if waits then
          server:cli("ZADD", "holdfast_queue:{" .. key .. "}", ("%.0f"):format(place(waits)), "1l" .. UUID .. ":9:1")
        end
      end
      local function order(query)
        local list = {}
        for i, each in ipairs(state(query).locks) do list[i] = each.key end
        return table.concat(list, " ")
      end
      hold("late", 1, 10, 9)
      hold("b", 2, 60)
      hold("a", 3, 3600)
      hold("later", 4, 7200, 5)
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
      assert.is_true(math.abs(now - 3600 - seen.since) < 3, seen.since)
      assert.is_nil(seen["break"])
      hold("-$(rm) 'x'", 5, 1)
      seen = eventually("-$(rm) 'x'", function() return true end)
      seen = entry(seen.key, "&open=-%24(rm)%20'x'")
      assert.equal([[holdfast break -- '-$(rm) '\''x'\']], seen["break"])
      server:cli("FLUSHALL")
    end)

    -- Writes a lock like another program: { key, owner, TTL in ms, token, members of its queue }.
    local function write_lock(lock)
      server:cli("HSET", lock.key, lock.owner or UUID .. ":1", 1)
      server:cli("PEXPIRE", lock.key, lock.ttl or 600000)
      if lock.token then
        server:cli("SET", "redisson_lock_token:{" .. lock.key .. "}", lock.token)
      end
      for i, member in ipairs(lock.queue or {}) do
        server:cli("ZADD", "holdfast_queue:{" .. lock.key .. "}", ("%.0f"):format(place() + i), member)
      end
    end

    local function order_of(query)
      local list = {}
      for i, each in ipairs(state(query).locks) do list[i] = each.key end
      return table.concat(list, " ")
    end

    it("sorts by lease or token, with equal locks by hold and key",
      function()
      start {}
      local at = os.time() - 10
      write_lock { key = "b", ttl = 500000, token = ("%.0f"):format(at * 1e6) }
      write_lock { key = "a", ttl = 600000, token = ("%.0f"):format((at - 5) * 1e6) }
      write_lock { key = "c", ttl = 400000 }
      assert.truthy(process.wait_until(function() return state().count == 3 end, PATIENCE))
      for query, wanted in pairs {
        ["sort=ttl"] = "c b a", ["sort=ttl&reverse"] = "a b c", ["sort=token"] = "a b c",
        ["sort=token&reverse"] = "c b a", ["sort=holder"] = "a b c", ["sort=waiters"] = "a b c",
        ["sort=nothing"] = "a b c", ["sort=key&sort=ttl"] = "a b c", ["from=x"] = "a b c",
        ["from=1&sort=key"] = "b c", ["search=a&search=b"] = "a b c", ["prefix"] = "a b c",
        ["from=1e9"] = "a b c", ["from=999999999"] = "",
      } do
        assert.equal(wanted, order_of("&" .. query), query)
      end
    end)

    it("shows how long each waiter has waited, and which wait is longest", function()
      start {}
      local from = process.now()
      local function put(key, n, seconds)
        server:cli("ZADD", "holdfast_queue:{" .. key .. "}", ("%.0f"):format(place(seconds)),
          ("1l%s:%d:1"):format(UUID, n))
      end
      local function is_about(seconds, shown)
        return shown >= seconds and shown < seconds + process.now() - from + 2
      end
      write_lock { key = "k" }
      write_lock { key = "j" }
      put("k", 1, 25)
      put("k", 2, 15)
      put("j", 7, 20)
      local seen = eventually("k", function(of) return of.waiters == 2 end)
      assert.is_true(is_about(25, seen.wait), seen.wait)
      assert.is_true(is_about(25, seen.queue[1].seconds), seen.queue[1].seconds)
      assert.is_true(is_about(15, seen.queue[2].seconds), seen.queue[2].seconds)
      assert.is_nil(seen.wait_at_least)
      assert.is_true(is_about(25, state().longest_wait))
      -- after the first waiter has left, the second one's own wait is shown
      server:cli("ZREM", "holdfast_queue:{k}", ("1l%s:%d:1"):format(UUID, 1))
      seen = eventually("k", function(of) return of.waiters == 1 end)
      assert.near(seen.wait, seen.queue[1].seconds, 1)
      assert.truthy(process.wait_until(function()
        return state().longest_wait > seen.wait
      end, PATIENCE))
      local of_k = state("&prefix=k")
      assert.same({ 1, 1, 2 }, { of_k.count, of_k.waiters, state().waiters })
      assert.is_true(of_k.longest_wait > seen.wait + 2) -- it counts the waits for all locks
      put("j", 8, 31)
      assert.truthy(process.wait_until(function() return state().state == "long_wait" end, PATIENCE))
      assert.equal("j", state().longest_key)
      server:cli("FLUSHALL")
      assert.truthy(process.wait_until(function() return state().count == 0 end, PATIENCE))
      local empty
      assert.truthy(process.wait_until(function()
        empty = state()
        return empty.state == "well"
      end, PATIENCE), empty and empty.state)
      assert.same({ 0 }, { empty.waiters, empty.longest_wait })
    end)

    it("shows host, process and name of holders and waiters", function()
      start {}
      local names = { [UUID] = "web-1 4711 shop", ["c" .. UUID:sub(2)] = "web-2 4712" }
      for uuid, name in pairs(names) do server:cli("SET", "holdfast_client:" .. uuid, name) end
      write_lock { key = "k", queue = { "1lc" .. UUID:sub(2) .. ":3:1" } }
      local seen = eventually("k", function(of) return of.host and of.queue[1].host end)
      assert.same({ UUID .. ":1", "web-1", 4711, "shop", 1 },
        { seen.owner, seen.host, seen.pid, seen.name, seen.holds })
      local waiter = seen.queue[1]
      assert.same({ "c" .. UUID:sub(2) .. ":3", "web-2", 4712 },
        { waiter.owner, waiter.host, waiter.pid, waiter.name })
      server:cli("FLUSHALL")
    end)

    it("counts leases down between two reads of the server", function()
      start {}
      write_lock { key = "k", ttl = 60000, queue = { "1l" .. UUID .. ":9:1" } }
      eventually("k", function(of) return of.waiters == 1 end)
      local function of_lock(answer)
        local lock = answer.locks[1]
        return { -lock.ttl, lock.wait, lock.queue[1].seconds }
      end
      local first, second
      assert.truthy(process.wait_until(function()
        first = state()
        process.sleep(0.2)
        second = state()
        return second.age >= first.age + 0.2 -- there was no look in between
      end, PATIENCE))
      local before, after = of_lock(first), of_lock(second)
      for i = 1, 3 do assert.is_true(after[i] >= before[i] + 0.15, i) end
      server:cli("FLUSHALL")
    end)

    it("omits a key that is no longer a lock", function()
      start {}
      write_lock { key = "k" }
      eventually("k", function() return true end)
      server:cli("DEL", "k")
      server:cli("RPUSH", "k", "x")
      assert.truthy(process.wait_until(function() return state().count == 0 end, PATIENCE))
      server:cli("FLUSHALL")
    end)

    it("shows how to break each kind, shortens long keys, and links to any key",
      function()
      start {}
      local long, binary = ("x"):rep(1025), "a\1/ä"
      for _, key in ipairs { long, ("y"):rep(1024), binary, "a\"\\" } do
        write_lock { key = key }
      end
      local latch = client:latch("gate")
      assert(latch:set(1))
      local waiting = command.start(server, { "latch", "wait", "gate" })
      local answer
      assert.truthy(process.wait_until(function()
        answer = state("&open=gate&open=" .. ("y"):rep(1024)
          .. "&open=a%01/%C3%A4&open=a%22%5C&open=" .. long)
        return answer.count == 5
      end, PATIENCE), answer and answer.count)
      local rows = {}
      for _, lock in ipairs(answer.locks) do rows[lock.key] = lock end
      assert.equal("holdfast latch delete gate", rows.gate["break"])
      local cut, whole = rows[("x"):rep(1024)], rows[("y"):rep(1024)]
      assert.same({ 1025 }, { cut.key_size, cut.link, cut["break"] })
      assert.is_nil(whole.key_size)
      assert.equal("holdfast break " .. ("y"):rep(1024), whole["break"])
      assert.equal("a%01%2F%C3%A4", rows[binary].link)
      assert.is_nil(rows["a\"\\"].link)
      assert.truthy(rows["a\"\\"]["break"])
      assert(latch:count_down())
      assert.same({ "exit", 0 }, { waiting:wait(PATIENCE) })
      server:cli("FLUSHALL")
    end)

    it("keeps the last data while servers are down, and never older data", function()
      start {}
      write_lock { key = "k", ttl = 900, queue = { "1l" .. UUID .. ":9:1" } }
      write_lock { key = "long", ttl = 600000 }
      eventually("long", function() return true end)
      local seen = entry("k")
      server:kill()
      local function away()
        assert.truthy(process.wait_until(function()
          seen = nil
          local answer = dkjson.decode(front:get("/status?json").body)
          for _, lock in ipairs(answer.locks) do
            if lock.key == "k" then seen = lock end
          end
          return answer.state == "away"
        end, PATIENCE))
        assert.truthy(seen, "the lock is not shown any more")
        return { seen.ttl, seen.wait, seen.queue[1].seconds }
      end
      local first = away()
      process.sleep(0.5)
      local second = away()
      for i = 1, 3 do
        assert.is_true(math.abs(first[i] - second[i]) < 0.1,
          ("%s, then %s"):format(first[i], second[i]))
      end
      assert.is_true(second[1] > 0)
    end)

    it("has a page per pattern, with its own locks, losses and deadlocks", function()
      start {
        more = [[
          location = /only { content_by_lua_block {
            HOLDFAST.status { client = CLIENT, pattern = "only:*" }
          } }
          location = /both { content_by_lua_block {
            local own = HOLDFAST.new { url = CLIENT_URL, name = ngx.var.arg_one }
            local held = assert(own:lock(ngx.var.arg_one):acquire(0))
            while not ngx.shared.holdfast:get("go") do ngx.sleep(0.01) end
            ngx.print(tostring(own:lock(ngx.var.arg_other):acquire(60) ~= nil))
            held:release()
            own:close()
          } }
          location = /go { content_by_lua_block { ngx.shared.holdfast:set("go", true) } }
        ]],
      }
      local function only()
        return dkjson.decode(front:get("/only?json").body)
      end
      only()
      state()
      assert.equal("lost", front:get("/lose").body)
      local lock = assert(client:lock("only:mine"):acquire(0))
      assert.truthy(process.wait_until(function() return only().count == 1 end, PATIENCE))
      assert.equal("only:mine", only().locks[1].key)
      local all
      assert.truthy(process.wait_until(function()
        all = state()
        return all.count == 1 and all.lost[1]
      end, PATIENCE))
      assert.matches("^%x+%-%x+%-%x+%-%x+%-%x+:%d", all.lost[1].owner)
      assert.same({ front:workers()[1], 1 }, { all.lost[1].pid, #all.lost })
      local reasons = {}
      for reason in pairs(all.losses) do reasons[#reasons + 1] = reason end
      table.sort(reasons)
      assert.same({ "deleted", "expired", "max_hold", "taken", "unreachable" }, reasons)
      -- a deadlock is shown on each page that shows one of its locks
      local one, other = front:begin("/both?one=left&other=right"),
        front:begin("/both?one=right&other=left")
      assert.truthy(process.wait_until(function() return state().count == 3 end, PATIENCE))
      front:get("/go")
      local cycle
      assert.truthy(process.wait_until(function()
        all = state()
        cycle = all.deadlocks[1]
        return cycle
      end, PATIENCE), "no deadlock is shown")
      assert.same({ 1, 2, "deadlock" }, { #all.deadlocks, #cycle, all.state })
      local owners = {}
      for _, each in ipairs(all.locks) do owners[each.key] = each.owner end
      local pid = front:workers()[1]
      for i, wait in ipairs(cycle) do
        local of = wait.key == "left" and "right" or "left"
        assert.equal(owners[of]:sub(1, 36), wait.owner:sub(1, 36))
        assert.same({ owners[wait.key], of, wait.key, pid, pid },
          { wait.holder, wait.name, wait.holder_name, wait.pid, wait.holder_pid })
        assert.same({ wait.host, i == 1 and "holdfast break " .. wait.key or nil },
          { wait.holder_host, wait["break"] })
        assert.matches("%w", wait.host)
      end
      for i = 1, 2 do -- nginx looks for deadlocks only where callers wait
        server:cli("ZADD", "holdfast_queue:{only:mine}", ("%.0f"):format(place() + i), ("1l%s:%d:1"):format(UUID, i))
      end
      assert.truthy(process.wait_until(function()
        return (only().longest_wait or 0) > 1.5
      end, PATIENCE))
      assert.same({}, only().deadlocks)
      client:lock("left"):force_release()
      assert.equal("true", one:finish().body)
      assert.equal("true", other:finish().body)
      assert.truthy(process.wait_until(function() return #state().deadlocks == 0 end, PATIENCE))
      server:cli("DEL", "holdfast_queue:{only:mine}")
      lock:release()
      assert.same({}, front:errors())
    end)

    it("lists as many losses as fit, and counts all of them without a dict", function()
      start { dict = "", more = [[ location = /lose_many { content_by_lua_block {
        local other = HOLDFAST.new { url = CLIENT_URL, driver = "posix" }
        for i = 1, 12 do
          local key = i .. ("x"):rep(400)
          local lock = CLIENT:lock(key, { class = i % 2 == 0 and "even" or "odd" })
          assert(lock:acquire())
          other:lock(key):force_release()
          lock:check()
        end
        other:close()
      } } ]] }
      state()
      assert.equal(200, front:get("/lose_many").status)
      assert.equal("lost", front:get("/lose").body)
      local answer
      assert.truthy(process.wait_until(function()
        answer = state()
        return answer.losses.deleted == 13
      end, PATIENCE), answer and answer.losses.deleted)
      assert.is_true(#answer.lost > 1 and #answer.lost < 10, #answer.lost)
      assert.equal("lost", answer.lost[1].key)
      for i = 2, #answer.lost do
        assert.equal((14 - i .. ("x"):rep(400)):sub(1, 255), answer.lost[i].key)
      end
    end)

    it("scans all keys in the background once opened, and says when it is complete", function()
      start { dict = "" }
      local count = 4000
      forge(count, 0)
      local from = scans()
      local first = state()
      if first.complete then return end -- the machine is too fast for this test
      assert.is_true(first.count < count)
      assert.is_true(first.looked < first.keys, first.looked)
      assert.equal(count, first.keys)
      -- four types of keys: queues, hashes, strings and permits
      assert.truthy(process.wait_until(function() return scans() - from >= 4 * count / 500 end, 60))
      local now
      assert.truthy(process.wait_until(function()
        now = state()
        return now.complete
      end, 60))
      assert.equal(count, now.count)
      assert.same({}, { now.looked, now.keys })
      server:cli("FLUSHALL")
    end)

    it("reads the server once for all viewers, and plots up to the present", function()
      start {}
      state()
      assert.truthy(process.wait_until(function()
        local from = scans()
        state()
        return scans() > from
      end, PATIENCE))
      local from, began = scans(), process.now()
      for _ = 1, 30 do state() end
      local looks = math.ceil((process.now() - began) / 0.4) + 1
      assert.is_true(scans() - from <= 4 * looks, scans() - from)
      local answer = state()
      assert.equal((server:url():gsub("^unix://", "unix:")), answer.server)
      assert.truthy(process.wait_until(function() return state().age < 0.25 end, PATIENCE))
      for i = 2, #answer.points do
        assert.equal(answer.points[i - 1].time + 5, answer.points[i].time)
      end
      local last = answer.points[#answer.points]
      assert.is_true(last.time <= answer.time and last.time > answer.time - 6)
      assert.equal(0, last.waiting or answer.points[#answer.points - 1].waiting)
    end)

    it("does not look up each name while the server hangs", function()
      start { where = ('url = "%s", command_timeout = 0.3'):format(server:url()) }
      for i = 1, 20 do
        write_lock { key = "k" .. i, owner = ("%08x%s:1"):format(i, UUID:sub(9)) }
      end
      assert.truthy(process.wait_until(function() return state().count == 20 end, PATIENCE))
      server:kill("STOP")
      local function ask()
        local from = process.now()
        return front:get("/status?json"), process.now() - from
      end
      assert.truthy(process.wait_until(function() return ask().status == 503 end, PATIENCE))
      process.sleep(1) -- nginx asks for an unknown name once a second
      local answer, took = ask()
      server:kill("CONT")
      assert.equal(20, #dkjson.decode(answer.body).locks)
      assert.is_true(took < 4, took) -- asking for all 20 names would take 6 s
      server:cli("FLUSHALL")
    end)

    it("says that it left out a list because of its size, until the list is smaller", function()
      start {}
      local listener = assert(resp.connect { path = server.path })
      assert.is_nil(state().left_out)
      listener:call("SUBSCRIBE", "redisson_countdownlatch__channel__{" .. ("x"):rep(5 * 2 ^ 20) .. "}")
      local function left_out() return state().left_out end
      assert.truthy(process.wait_until(left_out, PATIENCE))
      assert.equal("left out: latches, because the list of channels is larger than 4 MiB", left_out())
      listener:close()
      assert.truthy(process.wait_until(function() return not left_out() end, PATIENCE))
    end)

    -- A scan begins again as soon as it has seen all keys.
    it("says what a full scan left out until the next scan has ended", function()
      start { more = [[ location = /rounds { content_by_lua_block {
        local locks, pages = require "holdfast.command.locks", require "holdfast.pages"
        local scan = locks.scans(CLIENT, "*", true)[1]
        local told, left = {}, 0
        function pages.scan() return { table.remove(left), {}, table.remove(left) }, nil, nil, 1 end
        left = { 0, "0", 0, "7", 3, "0", 2, "7" }
        while #left > 0 do
          assert(scan:next())
          told[#told + 1] = locks.left_out { scan } and scan.unread or 0
        end
        ngx.print(table.concat(told, " "))
      } } ]] }
      assert.equal("2 5 5 0", front:get("/rounds").body)
    end)

    it("sends JSON with the same security headers as the page", function()
      start {}
      local response = front:get("/status?json")
      for name, value in pairs { ["cache-control"] = "no-store",
        ["referrer-policy"] = "no-referrer", ["x-content-type-options"] = "nosniff",
        ["content-type"] = "application/json" } do
        assert.equal(value, response.headers[name])
      end
      assert.matches("default%-src 'none'", response.headers["content-security-policy"])
    end)

    -- What would take minutes is tested on the record itself.
    describe("keeps for ten minutes", function()
      -- Writes strings, numbers, booleans and lists so that Lua can read them.
      local SHOW = [[
        local function show(value)
          if type(value) ~= "table" then return ("%s"):format(
            type(value) == "string" and ("%q"):format(value) or tostring(value)) end
          local texts = {}
          for i, each in ipairs(value) do texts[i] = show(each) end
          return "{" .. table.concat(texts, ",") .. "}"
        end
      ]]

      -- → a list of what this code returns in nginx
      local function ask(code, dict)
        start { dict = dict, more = ([[ location = /record { content_by_lua_block {
          SHOW
          local records = require "holdfast.status_record"
          local record, other = records.new("id"), records.new("other id")
          local dict = ngx.shared.holdfast
          local name = dict and "status:" .. ngx.encode_base64(ngx.md5_bin("id")) .. " "
          local list = { (function() CODE end)() }
          ngx.print("return ", show(list))
        } } ]]):gsub("SHOW", function() return SHOW end):gsub("CODE", function()
          return code
        end) }
        local response = front:get("/record")
        assert.equal(200, response.status, table.concat(front:errors(), "\n"))
        return assert((loadstring or load)(response.body))()
      end

      local LOSSES = [[
        for i = 1, 12 do
          record:add_loss { time = ngx.now() - 12 + i, key = "a b%20|" .. i, reason = "deleted",
            class = "c d", owner = "o", pid = 4711 }
        end
        local listed = {}
        for i, loss in ipairs(record:losses()) do
          listed[i] = loss.key .. loss.reason .. loss.class .. loss.owner .. loss.pid
          if math.abs(ngx.now() - i + 1 - loss.time) > 5 then listed[i] = "at another time" end
        end
      ]]
      local LISTED = {}
      for i = 12, 3, -1 do LISTED[#LISTED + 1] = "a b%20|" .. i .. "deletedc do4711" end

      it("the last ten losses, whatever strings they contain", function()
        assert.same({ LISTED, 0 }, ask(LOSSES .. "return listed, #other:losses()"))
        front:stop("TERM")
        assert.same({ LISTED, 0 }, ask(LOSSES .. "return listed, #other:losses()", ""))
      end)

      it("no older losses", function()
        assert.same({ 1, "new" }, ask([[
          for _, age in ipairs { 601, 590 } do
            record:add_loss { time = ngx.now() - age, key = age > 600 and "old" or "new" }
          end
          local list = record:losses()
          return #list, list[1].key
        ]], ""))
        front:stop("TERM")
        assert.same({ true }, ask [[
          record:add_loss { time = ngx.now(), key = "k", reason = "deleted", class = "c",
            owner = "o", pid = 1 }
          local left = dict:ttl(name .. "loss 1")
          return left > 590 and left <= 600
        ]])
      end)

      local POINTS = [[
        record:add(1000, 3)
        record:add(1000, 1)
        record:add(1005, 4)
        local list = { record:point(1000), record:point(1005), other:point(1000) or "none", record:point(1010) or "none" }
      ]]

      it("a point per interval, with the highest number of waiters in it", function()
        assert.same({ { 3, 4, "none", "none" }, true }, ask(POINTS .. [[
          return list, math.abs(dict:ttl(name .. 1000) - 605) < 5
        ]]))
        front:stop("TERM")
        assert.same({ { 3, 4, "none", "none" }, 3, "none" }, ask(POINTS .. [[
          record:add(1600, 0)
          local kept = record:point(1000)
          record:add(1605, 0)
          return list, kept, record:point(1000) or "none"
        ]], ""))
      end)

      it("a lease for the worker that reads the server, which renews it and releases it on exit", function()
        assert.same({ { true, false, true, true }, true, { false, true }, { true, false } }, ask [[
          local second = records.new("id")
          local list = { record:leads(), second:leads(), record:leads(), other:leads() }
          dict:expire(name .. "looks", 1)
          record:leads()
          local left = dict:ttl(name .. "looks")
          local renewed = left > 4 and left <= 5
          second:leave()
          local others = { second:leads(), record:leads() }
          record:leave()
          return list, renewed, others, { second:leads(), record:leads() }
        ]])
        front:stop("TERM")
        assert.same({ true, true }, ask("return record:leads(), records.new('id'):leads()", ""))
      end)

      it("requests to the worker that reads the server, and answers each of them once", function()
        assert.same({ { "a", 503 }, { "b", 200 }, "none", { "a", "b", "none" }, "none" }, ask [[
          local asks, answers, seen = records.new("id"), {}, {}
          local function put(question, number)
            return ngx.thread.spawn(function()
              answers[number] = { asks:ask(question, function() return false end) }
            end)
          end
          local threads = { put("a", 1), put("b", 2), put("a", 3) }
          for i = 1, 3 do
            seen[i] = record:question() or "none"
            if seen[i] ~= "none" then record:publish(seen[i], seen[i], seen[i] == "a" and 503 or 200) end
          end
          for _, thread in ipairs(threads) do ngx.thread.wait(thread) end
          -- an answer that does not fit into the dict, and an asker that looks itself by now
          local thread = ngx.thread.spawn(function()
            answers[4] = { asks:ask("c", function() return false end) }
          end)
          record:publish(record:question(), ("x"):rep(2000000), 200)
          ngx.thread.wait(thread)
          local mine = { asks:ask("d", function() return true end) }
          return answers[1], answers[2], answers[4][1] or "none", seen, mine[1] or "none"
        ]])
      end)

      -- What a page keeps that has been open for months.
      it("no outdated names or rows", function()
        assert.same({ 1, 0, 0, "answered", true, true }, ask [[
          local views, now = require "holdfast.status_view", require("holdfast.core").now()
          local view = views.new(CLIENT, "*", "here")
          view.names = { old = { at = now - 31 }, new = { at = now - 20 } }
          view.shown = { gone = now, old = now - 4 }
          views.note_request(view)
          views.refresh(view)
          local function count(of)
            local n = 0
            for _ in pairs(of) do n = n + 1 end
            return n
          end
          local names, shown, new = count(view.names), count(view.shown), view.names.new and 0 or 1
          local held = assert(CLIENT:lock("k"):acquire(0))
          local answers = require "holdfast.status_json"
          for _ = 1, 100 do
            if view.shown.k then break end
            ngx.sleep(0.2)
            views.refresh(view)
            answers.reply(view, answers.parse_arguments {})
          end
          local age = require("holdfast.core").now() - (view.shown.k or 0)
          held:release()
          return names, shown, new, views.outage(view) or "answered", age < 3,
            view.record.name ~= views.new(CLIENT, "*", "elsewhere").record.name
        ]])
      end)

      it("one timer per worker, whatever Lua state it is in", function()
        assert.same({ true, true, false, true, true }, ask [[
          local second, list = records.new("id"), {}
          list[1], list[2], list[3] = record:has_timer(), record:has_timer(), second:has_timer()
          list[4] = dict:ttl(name .. "timer " .. ngx.worker.pid()) > 4
          dict:delete(name .. "timer " .. ngx.worker.pid())
          list[5] = second:has_timer()
          return unpack(list)
        ]])
      end)
    end)

    it("answers only to the host names in its options", function()
      start { more = [[
        location = /own { content_by_lua_block {
          HOLDFAST.status { client = CLIENT, host = { "Locks.Example", "localhost" } }
        } }
        location = /one { content_by_lua_block {
          HOLDFAST.status { client = CLIENT, host = "[::1]" }
        } }
      ]] }
      local function status_of(path, host)
        local request = front:get("http://" .. host .. path .. "?json", { headers = { ["X-Y"] = "z" } })
        return request.status
      end
      for _, host in ipairs { "locks.example", "LOCKS.example:8080", "localhost" } do
        assert.equal(200, status_of("/own", host), host)
      end
      for _, host in ipairs { "spec", "127.0.0.1", "locks.example.attacker.example", "example" } do
        assert.equal(421, status_of("/own", host), host)
      end
      assert.equal(421, front:get("/own").status)
      assert.equal(200, status_of("/one", "[::1]:8080"))
      assert.equal(421, status_of("/one", "localhost"))
      assert.equal(200, status_of("/status", "anything"))
    end)

    it("answers only GET and HEAD, and warns that access to it must be restricted", function()
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
    end)

    it("needs no right to write on the server", function()
      assert.equal("OK", server:cli("ACL", "SETUSER", "viewer", "on", ">pw", "~*", "&*", "+@all", "-@write"))
      start { where = ('url = "%s"'):format((server:tcp_url():gsub("//", "//viewer:pw@"))) }
      local waiter = process.lua { args = { server:url() }, code = [[
        local client = require("holdfast").new(arg[1])
        client:lock("seen"):acquire(60)
        client:close()
      ]] }
      client:with_lock("seen", function()
        eventually("seen", function(lock) return lock.waiters == 1 end)
        state "&open=seen"
      end)
      assert.same({ "exit", 0 }, { waiter:wait(PATIENCE) }, waiter:output())
      assert.same({}, server:cli("ACL", "LOG"))
      assert.same({}, front:errors())
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

    -- → what was slow by the server's clock in each of 8 rounds; nil if one round had nothing slow.
    -- A server without a core is slow now and then, but not each time.
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

    it("never blocks the server for 5 ms with 10,000 locks, and neither does the command #check",
      function()
      start {}
      lock_many(server)
      assert.matches("us: EVAL", slowest(server, function() -- slow commands are noticed
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
