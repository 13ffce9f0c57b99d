-- Under ngx_lua: the functions of the API return in a request what they return elsewhere, and a
-- lock belongs to the request that has acquired it.

local resty = require "spec.support.resty"

if not resty.is_there() then return end

local FINISH, comes_to_say, free_within = resty.FINISH, resty.comes_to_say, resty.free_within
local front, handler, is_free = resty.front, resty.handler, resty.is_free
local reply_of, say, server, start = resty.reply_of, resty.say, resty.server, resty.start

describe("under ngx_lua", function()
  before_each(resty.open)
  after_each(resty.close)

  describe("the API", function()
    it("returns the same results and error codes as elsewhere", function()
      start { server = FINISH .. handler("/lock", [[
        local lock = CLIENT:lock("a")
        SAY(lock:acquire(1) == lock, lock:acquire() == lock, lock:holds(), lock:is_held(), lock:check())
        SAY(lock:info().owner == lock:owner(), lock:ttl() > 29, lock:is_locked())
        SAY(lock:extend(10), lock:remaining() < 10)
        SAY(lock:release(), lock:release(), lock:is_held())
        SAY(select(3, lock:release()))
      ]]) .. handler("/busy", [[
        local mine, other = CLIENT:lock("b", { owner = "one" }), CLIENT:lock("b", { owner = "two" })
        assert(mine:acquire())
        local begun = require "holdfast.core".now()
        SAY(select(3, other:acquire(0.2)), math.floor((require "holdfast.core".now() - begun) * 10))
        SAY(other:force_release(), select(3, mine:release()))
      ]]) .. handler("/templates", [[
        SAY(CLIENT:with_lock("c", function(lock, x) return lock:is_held(), x, nil, 4 end, 2))
        SAY(pcall(CLIENT.with_lock, CLIENT, "c", function() error("bad", 0) end))
        SAY(CLIENT:one_by_one():execute("order", 7, function() return "one" end))
        SAY(CLIENT:idempotent("d", function() return "first" end))
        SAY(CLIENT:idempotent("d", { info = "again" }, function() return "second" end))
        SAY(CLIENT:once("o", 60, function(lock) return lock:is_held() end))
        SAY((select(3, CLIENT:once("o", 60, function() return "second" end))))
        local both = CLIENT:multi_lock { "e", "f" }
        SAY(both:acquire() == both, both:is_held(), both:release())
        SAY(CLIENT:mutex("g"):acquire() ~= nil, CLIENT:ping() < 1)
      ]]) .. handler("/posix", [[
        local blocking = HOLDFAST.new { url = "]] .. server:url() .. [[", driver = "posix" }
        SAY(blocking:with_lock("h", function() return CLIENT:lock("h"):try_acquire() end))
        SAY(blocking:ping() < 1)
        blocking:close()
      ]]) .. handler("/misuse", [[
        SAY(pcall(CLIENT.with_lock, CLIENT, "a", { abort_on_loss = true }, print))
      ]]) }
      assert.equal("true|true|2|true|true\ntrue|true|true\ntrue|true\ntrue|true|false\nnot_held",
        say "/lock")
      assert.equal("busy|2\ntrue|lost", say "/busy")
      assert.equal("true|2|nil|4\nfalse|bad\none\nfirst\nnil|again|duplicate\ntrue\nduplicate\ntrue|true|true\ntrue|true",
        say "/templates")
      assert.equal("nil|busy", (say("/posix"):gsub("|.-|", "|", 1):gsub("\ntrue$", "")))
      assert.truthy(say("/misuse"):find("^false|.*abort_on_loss"))
    end)

    it("does not wait for an async release", function()
      start { server = FINISH .. handler("/", [[
        local lock, done = CLIENT:lock("a", { async_release = true }), 0
        for _ = 1, 50 do
          assert(lock:try_acquire())
          done = done + (lock:release() == true and 1 or 0)
        end
        SAY(done, lock:is_held(), select(3, lock:release()))
      ]]) .. handler("/lost", [[
        local reported
        local lock = CLIENT:lock("b", { async_release = true, on_lost = function(_, reason) reported = reason end })
        assert(lock:acquire())
        assert(CLIENT:lock("b", { owner = "other" }):force_release())
        local released = lock:release()
        for _ = 1, 100 do
          if reported then break end
          ngx.sleep(0.01)
        end
        SAY(released, reported, lock:lost())
      ]]) }
      assert.equal("50|false|not_held", say "/")
      assert.equal("true|deleted|deleted", say "/lost")
      assert.is_truthy(free_within("a", 2))
    end)

    it("sends an async release together with the request's next command", function()
      start { server = FINISH .. handler("/", [[
        local lock = CLIENT:lock("a", { async_release = true })
        for _ = 1, 100 do
          assert(lock:acquire())
          assert(lock:release())
        end
        SAY(true)
      ]]) }
      local function reads()
        return tonumber(server:cli("INFO", "stats"):match("total_reads_processed:(%d+)"))
      end
      say "/" -- the server knows the programs now
      local before = reads()
      say "/"
      local seen = reads() - before
      assert.is_true(seen < 120, seen .. " reads of the server for 100 acquires and releases")
      assert.is_truthy(free_within("a", 2))
    end)

    it("keeps a lock for its requests until other clients want it", function()
      start { server = FINISH .. handler("/", [[
        local before, last = nil, 0
        local function trips() return CLIENT:stats().round_trips end
        for _ = 1, 50 do
          local lock = assert(CLIENT:lock("hot", { keep = 30 }):acquire())
          assert(lock:token() > last)
          last = lock:token()
          assert(lock:release())
          before = before or trips()
        end
        SAY(trips() - before <= 3)
      ]]) .. handler("/race", [[
        local counter, inside, threads = 0, 0, {}
        for i = 1, 40 do
          threads[i] = ngx.thread.spawn(function()
            local lock = assert(CLIENT:lock("hot", { keep = 30 }):acquire(20))
            inside = inside + 1
            assert(inside == 1)
            ngx.sleep(0)
            counter, inside = counter + 1, inside - 1
            assert(lock:release())
          end)
        end
        for i = 1, 40 do assert(ngx.thread.wait(threads[i])) end
        SAY(counter)
      ]]) .. handler("/leaves", [[
        assert(CLIENT:lock("hot", { keep = 30 }):acquire())
        SAY("gone")
      ]]) }
      for _ = 1, 3 do assert.equal("true", say "/") end
      assert.equal("40", say "/race")
      assert.is_false(is_free("hot"))
      local other = require("holdfast").new { url = server:url(), driver = "posix" }
      local lock = assert(other:lock("hot"):acquire(20)) -- no request runs
      assert.is_true(lock:release())
      assert.equal("true", say "/")
      assert.equal("gone", say "/leaves")
      assert(lock:acquire(20)):release()
      other:close()
    end)

    it("gives each request a different owner, although requests share a coroutine", function()
      start { server = handler("/leak", [[ SAY(CLIENT:lock("a"):acquire(0) ~= nil) ]])
        .. handler("/take", [[ SAY(select(3, CLIENT:lock("a"):acquire(0))) ]]) }
      assert.equal("true", say "/leak")
      for _ = 1, 20 do assert.equal("busy", say "/take") end
    end)

    it("does not show a lock as held to a later request in the same coroutine", function()
      start { server = handler("/leak", [[ LEFT = CLIENT:lock("a") SAY(LEFT:acquire(0) == LEFT, tostring(LEFT)) ]])
        .. handler("/show", [[ SAY(tostring(LEFT)) ]]) }
      assert.matches("^true|holdfast.lock: a %(held, ", say "/leak")
      for _ = 1, 5 do assert.equal("holdfast.lock: a (not held)", say "/show") end
    end)

    describe("with one handle shared by several requests", function()
      local SHARED = [[ init_worker_by_lua_block {
        PAGES, LOCK = CLIENT:read_write_lock("pages"), CLIENT:lock("a")
        OWNED = CLIENT:lock("owned", { owner = "us" })
        BLOCKING = HOLDFAST.new { url = "%s", driver = "posix" }:read_write_lock("pages")
        function HANDLE() return assert(load("return " .. ngx.unescape_uri(ngx.var.arg_of)))() end
      } ]]
      local READ, BLOCKING_READ = "of=PAGES:read()", "of=BLOCKING:read()"

      -- /hold holds the lock until OVER is set, the lock is lost, or `renewals` renewals are over.
      local function start_shared(lease)
        start { lease = lease, http = SHARED:format(server:url()), server = FINISH
          .. handler("/hold", [[
            local lock, from, renewals = HANDLE(), nil, tonumber(ngx.var.arg_renewals or 1e9)
            assert(lock:acquire(5))
            from, OVER, HELD = CLIENT:stats().renewals, false, true
            repeat ngx.sleep(0.02) until OVER or lock:lost() or CLIENT:stats().renewals >= from + renewals
            HELD = false
            SAY(lock:lost(), lock:holds(), lock:release())
          ]])
          .. handler("/use", [[ local lock = HANDLE() SAY(lock:acquire(5) == lock, lock:release()) ]])
          .. handler("/leave", [[ local lock = HANDLE() SAY(lock:acquire(5) == lock, lock:holds()) ]])
          .. "location /forget { log_by_lua_block { } content_by_lua_block { "
          .. "local lock = HANDLE() SAY(lock:acquire(5) == lock, lock:holds()) } }\n"
          .. handler("/stray", [[ SAY(select(3, HANDLE():release())) ]])
          .. handler("/info", [[
            local info = HANDLE():info()
            SAY(info.readers or info.holds)
          ]])
          .. handler("/held", [[ SAY(HELD) ]]) .. handler("/over", [[ OVER = true ]]) }
      end

      local function hold(of, more)
        local holder = front:begin("/hold?" .. of .. (more or ""))
        comes_to_say("/held", "true")
        return holder
      end

      it("renews the hold of one request after another one has released its own", function()
        start_shared(2)
        local holder = hold(READ, "&renewals=3")
        assert.equal("true|true", say("/use?" .. READ))
        assert.equal("nil|1|true", reply_of(holder))
      end)

      it("renews the hold of one request after another one released without holding it", function()
        start_shared(2)
        local holder = hold("of=LOCK", "&renewals=3")
        assert.equal("not_held", say "/stray?of=LOCK")
        assert.equal("nil|1|true", reply_of(holder))
      end)

      it("releases the hold of the request that ended, and of no other", function()
        start_shared(30)
        for _, of in ipairs { READ, BLOCKING_READ } do
          local holder = hold(of)
          assert.equal("true|1", say("/leave?" .. of))
          comes_to_say("/info?" .. of, "1")
          say "/over"
          assert.equal("nil|1|true", reply_of(holder))
          assert.truthy(free_within("pages", 5))
        end
      end)

      it("renews the remaining holds of a named owner after one of its requests has ended", function()
        start_shared(1.8)
        local holder = hold("of=OWNED", "&renewals=4")
        assert.equal("true|2", say "/leave?of=OWNED")
        assert.equal("nil|1|true", reply_of(holder))
        assert.truthy(free_within("owned", 5))
      end)

      it("renews a named owner's hold even if many of its requests have ended", function()
        start_shared(1.8)
        local holder = hold("of=OWNED", "&renewals=4")
        for i = 1, 6 do assert.equal("true|" .. i + 1, say "/forget?of=OWNED") end
        assert.equal("nil|7|true", reply_of(holder))
        server:cli("DEL", "owned")
      end)
    end)

    it("releases a lock whose handle was collected before its request ended", function()
      start { server = FINISH .. handler("/", [[
        assert(CLIENT:lock("a"):acquire())
        collectgarbage()
        assert(CLIENT:lock("b"):acquire())
      ]]) }
      for _ = 1, 3 do
        assert.equal("", say "/")
        assert.truthy(free_within("a", 5) and free_within("b", 5))
      end
      assert.same({}, front:errors())
      assert.is_nil(front:log():find("exited on signal", 1, true))
    end)
  end)
end)
