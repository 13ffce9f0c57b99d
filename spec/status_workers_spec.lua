-- The status page: who reads the server and when, with several workers, and while it is down.

local command = require "spec.support.command"
local dkjson = require "dkjson"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local resty = require "spec.support.resty"
local status = require "spec.support.status"

if not resty.is_there() then return end

local front, server = resty.front, resty.server
local PATIENCE, UUID, comes_to_show = status.PATIENCE, status.UUID, status.comes_to_show
local most_waiting, scans = status.most_waiting, status.scans
local shows, start, state = status.shows, status.start, status.state
local write_lock = status.write_lock
local eventually = status.eventually

describe("under ngx_lua", function()
  before_each(resty.open)
  after_each(resty.close)

  describe("the status page", function()
    local client

    before_each(function() client = holdfast.new { url = server:url(), name = "lua-owner" } end)
    after_each(function() client:close() end)

    -- Returns how often nginx has searched the queues: each time it asks four times for the
    -- channels of latches.
    local function searches()
      local info = server:cli("INFO", "commandstats")
      return (tonumber(info:match("cmdstat_pubsub|channels:calls=(%d+)")) or 0) / 4
    end

    -- Waits until nginx has finished a look without a request.
    local function wait_for_look()
      local from = searches()
      eventually(function()
        return searches() >= from + 2
      end, 60, "nginx does not look while the page is closed")
    end

    -- → the answers of two workers
    local function both()
      local answers, count = {}, 0
      eventually(function()
        local response = front:get("/status?json")
        local pid = response.headers.worker
        count = count + (answers[pid] and 0 or 1)
        answers[pid] = dkjson.decode(response.body)
        return count == 2
      end, nil, "one worker answers everything")
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
      eventually(function() return lock:info().waiters == 1 end)
      local second = patient()
      eventually(function() return lock:info().waiters == 2 end)
      local from = process.now()
      wait_for_look()
      lock:release()
      wait_for_look()
      eventually(function()
        local answers = both()
        local counted = answers[1].losses.deleted == 1 and answers[2].losses.deleted == 1
        return counted and answers[1].lost[1] and answers[2].lost[1]
      end)
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
    end)

    it("lets one worker read the server for all of them", function()
      start { workers = 3, where = ('url = "%s"'):format(server:tcp_url()) }
      both()
      local monitor, seen = server:monitor(), {}
      eventually(function()
        state()
        return monitor:count("SCAN") >= 12 -- at least three looks
      end)
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
      shows("early")
      server:cli("CLIENT", "PAUSE", 2000)
      eventually(function()
        return not front:begin("/status?json"):finish(0.3) -- asks until no view is fresh, and hangs up then
      end)
      local late = assert(client:lock("late"):acquire())
      shows("late")
      early:release()
      late:release()
    end)

    it("reads the locks before it is first opened if init_worker_by_lua calls it", function()
      start { http = "init_worker_by_lua_block { HOLDFAST.status { client = CLIENT } }" }
      wait_for_look()
    end)

    it("without a dict shows what its worker saw, and says so", function()
      start { dict = "" }
      assert.is_false(state().shared)
      local lock = assert(client:lock("busy"):acquire())
      local waiter = patient()
      shows("busy", function(of) return of.waiters == 1 end)
      lock:release()
      shows("busy", function(of) return of.waiters == 0 end)
      assert.equal(1, most_waiting(state()))
      assert.matches('at%("one%-worker%-note"%)%.hidden = state%.shared', front:get("/status").body)
      waiter:kill("TERM")
      assert.equal("exit", waiter:wait(PATIENCE))
    end)

    it("answers 503 while the server is down, with the last data and its age", function()
      resty.expect_errors()
      start {}
      write_lock { key = "seen", queue = { "1l" .. UUID .. ":9:1" } }
      shows("seen", function(of) return of.waiters == 1 end)
      server:kill()
      eventually(function() return front:get("/status?json").status == 503 end)
      local shown = state(nil, 503)
      assert.equal("away", shown.state)
      assert.matches("connection refused", shown.trouble)
      assert.is_true(shown.age > 0 and shown.age < 60)
      local then_ = shown.locks[1]
      assert.equal("seen", then_.key)
      local later = eventually(function() -- everything but the age is from the last reading
        local now = state(nil, 503)
        return now.age > shown.age + 1 and now
      end)
      assert.is_true(math.abs(later.locks[1].ttl - then_.ttl) < 0.5, later.locks[1].ttl)
      assert.is_true(math.abs(later.locks[1].wait - then_.wait) < 0.5, later.locks[1].wait)
    end)

    it("reads the server once for all viewers, and plots up to the present", function()
      start {}
      state()
      eventually(function()
        local from = scans()
        state()
        return scans() > from
      end)
      local from, began = scans(), process.now()
      for _ = 1, 30 do state() end
      local looks = math.ceil((process.now() - began) / 0.4) + 1
      assert.is_true(scans() - from <= 4 * looks, scans() - from)
      local answer = state()
      assert.equal((server:url():gsub("^unix://", "unix:")), answer.server)
      eventually(function() return state().age < 0.25 end)
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
      comes_to_show(20)
      server:kill("STOP")
      local function ask()
        local from = process.now()
        return front:get("/status?json"), process.now() - from
      end
      eventually(function() return ask().status == 503 end)
      process.sleep(1) -- nginx asks for an unknown name once a second
      local answer, took = ask()
      server:kill("CONT")
      assert.equal(20, #dkjson.decode(answer.body).locks)
      assert.is_true(took < 4, took) -- asking for all 20 names would take 6 s
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
          told[#told + 1] = locks.describe_unread { scan } and scan.unread or 0
        end
        ngx.print(table.concat(told, " "))
      } } ]] }
      assert.equal("2 5 5 0", front:get("/rounds").body)
    end)
  end)
end)
