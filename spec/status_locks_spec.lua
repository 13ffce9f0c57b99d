-- The status page: which locks, holders and waiters it shows, and how.

local command = require "spec.support.command"
local core = require "holdfast.core"
local dkjson = require "dkjson"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local resty = require "spec.support.resty"
local status = require "spec.support.status"

if not resty.is_there() then return end

local front, server, stop = resty.front, resty.server, resty.stop
local PATIENCE, UUID, comes_to_show = status.PATIENCE, status.UUID, status.comes_to_show
local entry, most_waiting, queue = status.entry, status.most_waiting, status.queue
local shows, start, start_quorum = status.shows, status.start, status.start_quorum
local state, write_lock = status.state, status.write_lock
local eventually = status.eventually

describe("under ngx_lua", function()
  before_each(resty.open)
  after_each(resty.close)

  describe("the status page", function()
    local client

    before_each(function() client = holdfast.new { url = server:url(), name = "lua-owner" } end)
    after_each(function() client:close() end)

    it("shows locks held by a job, by Java and by Lua, with holders and waiters", function()
      start {}
      local lock = assert(client:lock("from:lua"):acquire())
      write_lock { key = "from:java", owner = "b983c153-7421-469a-addb-44fb92259a1b:1" }
      local job = command.start(server, { "run", "--name", "nightly", "from:job", "--", "sleep",
        "60" })
      local waiter = command.start(server, { "run", "--name", "patient", "from:lua", "--", "sleep",
        "60" })
      local seen = shows("from:lua", function(of)
        return of.name and of.waiters == 1 and of.queue[1].name
      end)
      assert.same({ "lua-owner", 1, lock:owner() }, { seen.name, seen.holds, seen.owner })
      assert.is_string(seen.host)
      assert.equal(("%.0f"):format(lock:token()), seen.token)
      assert.equal("patient", seen.queue[1].name)
      assert.equal(waiter.pid, seen.queue[1].pid)
      assert.is_true(seen.ttl > 10 and seen.ttl <= 30, tostring(seen.ttl))
      assert.is_true(math.abs(os.time() - seen.since) < 60,
        ("since %s, now %s"):format(seen.since, os.time()))
      seen = shows("from:job", function(of) return of.name end)
      assert.equal("nightly", seen.name)
      assert.equal(job.pid, seen.pid)
      seen = shows("from:java")
      assert.equal("b983c153-7421-469a-addb-44fb92259a1b:1", seen.owner)
      local mutex = assert(client:mutex("from:mutex"):acquire())
      assert.is_true(shows("from:mutex").mutex)
      assert.is_nil(entry("from:java", "&prefix=from%3Al"))
      assert.truthy(entry("from:lua", "&prefix=from%3Al"))
      mutex:release()
      lock:release()
      shows("from:lua", function(of) return of.name == "patient" end)
      waiter:kill("TERM")
      assert.equal("exit", waiter:wait(PATIENCE))
      eventually(function() return not entry("from:lua") end)
      local points = state().points
      assert.equal(120, #points)
      assert.is_nil(points[1].waiting) -- nginx did not look then
      assert.equal(1, most_waiting(state()))
      job:kill("TERM")
      job:wait(PATIENCE)
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
        local seen = shows("app:rw", function(of) return of.name end)
        assert.same({ "read", 2, "lua-owner" }, { seen.mode, seen.readers, seen.name })
        seen = shows("app:pool")
        assert.same({ 3, 1, 2 }, { seen.permits, seen.available, seen.holds })
        assert.is_nil(seen.owner)
        eventually(function()
          local now = state().time
          return now > last + 0.5 and now
        end)
        last = state().time
      end
      rw:read():release()
      second:read():release()
      assert(rw:write():acquire())
      assert.equal(0, shows("app:rw", function(of) return of.mode == "write" end).readers)
      permit:release()
      eventually(function() return not entry("app:pool") end)
      rw:write():release()
      other:close()
    end)

    it("shows latches and the waiters of fair locks", function()
      start {}
      local latch = client:latch("gate")
      assert(latch:set(2))
      assert.is_nil(entry("gate"))
      local waits = command.start(server, { "latch", "wait", "gate" })
      local seen = shows("gate", function(of) return of.waiters == 1 end)
      assert.same({ "latch", 2 }, { seen.kind, seen.count })
      assert.equal("holdfast latch delete gate", entry("gate", "&open=gate")["break"])
      assert(latch:count_down(2))
      assert.same({ "exit", 0 }, { waits:wait(PATIENCE) })
      eventually(function() return not entry("gate") end)
      local booking = client:fair_lock("booking")
      assert(booking:acquire())
      assert.equal("lock", shows("booking").kind)
      local waiter = process.lua {
        code = [[assert(require("holdfast").new(arg[1]):fair_lock("booking"):acquire(60)):release()]],
        args = { server:url() },
      }
      for _ = 1, 3 do
        seen = shows("booking", function(of)
          return of.waiters == 1 and of.queue[1].pid == waiter.pid
        end)
        assert.equal("fair", seen.kind)
      end
      assert(booking:release())
      assert.same({ "exit", 0 }, { waiter:wait(PATIENCE) })
      eventually(function() return not entry("booking") end)
    end)

    it("shows the servers and locks of a quorum", function()
      resty.expect_errors()
      local servers, urls = start_quorum(4)
      local quorum = holdfast.new { servers = urls, mode = "quorum", name = "four" }
      local lock = assert(quorum:lock("q"):acquire())
      local seen = shows("q", function(of) return of.name end)
      assert.equal("four", seen.name)
      local members = state().members
      assert.equal(4, #members)
      assert.is_true(members[1].up)
      assert.equal("well", state().state)
      servers[1]:kill()
      eventually(function() return state().members[1].up == false end)
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
      eventually(function() return front:get("/status?json").status == 503 end)
      answer = state(nil, 503)
      assert.same({ "away", "2 of 4 servers answered" }, { answer.state, answer.trouble })
      stop()
      for _, each in ipairs(servers) do each:stop() end
    end)

    -- Short in make test, long in make fuzz. The next round through the locks begins at most 30 s
    -- after a slow one.
    it("shows valid locks, whatever data is on the server", function()
      resty.expect_forged_queues()
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
    end)

    it("shows how long each waiter has waited, and which wait is longest", function()
      start {}
      local from = process.now()
      local function is_about(seconds, shown)
        return shown >= seconds and shown < seconds + process.now() - from + 2
      end
      write_lock { key = "k" }
      write_lock { key = "j" }
      queue("k", 1, 25)
      queue("k", 2, 15)
      queue("j", 7, 20)
      local seen = shows("k", function(of) return of.waiters == 2 end)
      assert.is_true(is_about(25, seen.wait), seen.wait)
      assert.is_true(is_about(25, seen.queue[1].seconds), seen.queue[1].seconds)
      assert.is_true(is_about(15, seen.queue[2].seconds), seen.queue[2].seconds)
      assert.is_nil(seen.wait_at_least)
      assert.is_true(is_about(25, state().longest_wait))
      -- after the first waiter has left, the second one's own wait is shown
      server:cli("ZREM", "holdfast_queue:{k}", ("1l%s:%d:1"):format(UUID, 1))
      seen = shows("k", function(of) return of.waiters == 1 end)
      assert.near(seen.wait, seen.queue[1].seconds, 1)
      eventually(function() return state().longest_wait > seen.wait end)
      local of_k = state("&prefix=k")
      assert.same({ 1, 1, 2 }, { of_k.count, of_k.waiters, state().waiters })
      assert.is_true(of_k.longest_wait > seen.wait + 2) -- it counts the waits for all locks
      queue("j", 8, 31)
      eventually(function() return state().state == "long_wait" end)
      assert.equal("j", state().longest_key)
      server:cli("FLUSHALL")
      comes_to_show(0)
      local empty = eventually(function()
        local now = state()
        return now.state == "well" and now
      end)
      assert.same({ 0 }, { empty.waiters, empty.longest_wait })
    end)

    it("counts leases down between two reads of the server", function()
      start {}
      write_lock { key = "k", ttl = 60000, queue = { "1l" .. UUID .. ":9:1" } }
      shows("k", function(of) return of.waiters == 1 end)
      local function of_lock(answer)
        local lock = answer.locks[1]
        return { -lock.ttl, lock.wait, lock.queue[1].seconds }
      end
      local first, second
      eventually(function()
        first = state()
        process.sleep(0.2)
        second = state()
        return second.age >= first.age + 0.2 -- there was no look in between
      end)
      local before, after = of_lock(first), of_lock(second)
      for i = 1, 3 do assert.is_true(after[i] >= before[i] + 0.15, i) end
    end)

    it("shows how to break each kind, shortens long keys, and links to any key", function()
      start {}
      local long, binary = ("x"):rep(1025), "a\1/ä"
      for _, key in ipairs { long, ("y"):rep(1024), binary, "a\"\\" } do
        write_lock { key = key }
      end
      local latch = client:latch("gate")
      assert(latch:set(1))
      local waiting = command.start(server, { "latch", "wait", "gate" })
      local answer
      eventually(function()
        answer = state("&open=gate&open=" .. ("y"):rep(1024)
          .. "&open=a%01/%C3%A4&open=a%22%5C&open=" .. long)
        return answer.count == 5
      end, nil, function() return answer and answer.count end)
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
      local function only() return dkjson.decode(front:get("/only?json").body) end
      only()
      state()
      assert.equal("lost", front:get("/lose").body)
      local lock = assert(client:lock("only:mine"):acquire(0))
      eventually(function() return only().count == 1 end)
      assert.equal("only:mine", only().locks[1].key)
      local all = eventually(function()
        local now = state()
        return now.count == 1 and now.lost[1] and now
      end)
      assert.matches("^%x+%-%x+%-%x+%-%x+%-%x+:%d", all.lost[1].owner)
      assert.same({ front:workers()[1], 1 }, { all.lost[1].pid, #all.lost })
      local reasons = {}
      for reason in pairs(all.losses) do reasons[#reasons + 1] = reason end
      table.sort(reasons)
      assert.same({ "deleted", "expired", "max_hold", "taken", "unreachable" }, reasons)
      -- a deadlock is shown on each page that shows one of its locks
      local one, other = front:begin("/both?one=left&other=right"),
        front:begin("/both?one=right&other=left")
      comes_to_show(3)
      front:get("/go")
      all = eventually(function()
        local now = state()
        return now.deadlocks[1] and now
      end, nil, "no deadlock is shown")
      local cycle = all.deadlocks[1]
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
        queue("only:mine", i)
      end
      eventually(function() return (only().longest_wait or 0) > 1.5 end)
      assert.same({}, only().deadlocks)
      client:lock("left"):force_release()
      assert.equal("true", one:finish().body)
      assert.equal("true", other:finish().body)
      eventually(function() return #state().deadlocks == 0 end)
      server:cli("DEL", "holdfast_queue:{only:mine}")
      lock:release()
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
      local answer = eventually(function()
        local now = state()
        return now.losses.deleted == 13 and now
      end)
      assert.is_true(#answer.lost > 1 and #answer.lost < 10, #answer.lost)
      assert.equal("lost", answer.lost[1].key)
      for i = 2, #answer.lost do
        assert.equal((14 - i .. ("x"):rep(400)):sub(1, 255), answer.lost[i].key)
      end
    end)
  end)
end)
