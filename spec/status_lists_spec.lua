-- The status page: lists of many locks, searched and sorted in pages.

local command = require "spec.support.command"
local dkjson = require "dkjson"
local holdfast = require "holdfast"
local resty = require "spec.support.resty"
local status = require "spec.support.status"

if not resty.is_there() then return end

local front, server, stop = resty.front, resty.server, resty.stop
local UUID, comes_to_show, entry = status.UUID, status.comes_to_show, status.entry
local forge, most_waiting, order = status.forge, status.most_waiting, status.order
local queue, scans, shows, start = status.queue, status.scans, status.shows, status.start
local start_quorum, state, write_lock = status.start_quorum, status.state, status.write_lock
local eventually = status.eventually

describe("under ngx_lua", function()
  before_each(resty.open)
  after_each(resty.close)

  describe("the status page", function()
    local client

    before_each(function() client = holdfast.new { url = server:url(), name = "lua-owner" } end)
    after_each(function() client:close() end)

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
      eventually(function()
        local now = state()
        return now.count == count and now.waiters == 150 * busy
      end, 60)
      eventually(function() return most_waiting(state()) == 150 * busy end)
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
    end)

    it("skips names that do not fit in one reply, and shows the other locks", function()
      start {}
      local owner, mib = "11111111-2222-3333-4444-555555555555:1", ("a"):rep(2 ^ 20)
      resty.expect_forged_queues()
      write_lock { key = "good", owner = owner }
      write_lock { key = "", owner = owner }
      for i = 1, 5 do
        write_lock { key = i .. mib:sub(2), owner = owner }
        server:cli("ZADD", "holdfast_queue:{good}", i, "1l" .. i .. mib)
      end
      local good = shows("good", function() return state().count == 6 end)
      assert.equal(owner, good.owner)
      assert.is_true(#good.queue > 0)
      assert.equal(1, state("&search=goo").count)
      assert.equal(5, state("&search=" .. ("a"):rep(100)).count)
      eventually(function()
        return front:get("/status?json").body:find('"complete":true', 1, true)
      end, nil, "no round ends")
      assert.same({}, front:errors())
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

    it("sorts by longest wait, then by longest hold", function()
      start {}
      local now = os.time()
      local function hold(key, owner, seconds, waits)
        write_lock { key = key, owner = UUID .. ":" .. owner, ttl = 600000 - owner,
          token = (now - seconds) * 1e6 }
        if waits then queue(key, 9, waits) end
      end
      hold("late", 1, 10, 9)
      hold("b", 2, 60)
      hold("a", 3, 3600)
      hold("later", 4, 7200, 5)
      comes_to_show(4)
      for query, wanted in pairs {
        [""] = "late later a b", ["&sort=held"] = "later a b late",
        ["&sort=held&reverse"] = "late b a later", ["&sort=waiters"] = "later late a b",
        ["&sort=key"] = "a b late later", ["&sort=holder"] = "late b a later",
      } do assert.equal(wanted, order(query), query) end
      write_lock { key = "none", owner = UUID .. ":6", ttl = 500000 }
      comes_to_show(5)
      assert.equal("later a b late none", order("&sort=token"))
      assert.matches("^none ", order("&sort=ttl"))
      assert.matches(" none$", order("&sort=ttl&reverse"))
      server:cli("DEL", "none")
      comes_to_show(4)
      local seen = entry("a")
      assert.is_true(math.abs(now - 3600 - seen.since) < 3, seen.since)
      assert.is_nil(seen["break"])
      hold("-$(rm) 'x'", 5, 1)
      shows("-$(rm) 'x'")
      seen = entry("-$(rm) 'x'", "&open=-%24(rm)%20'x'")
      assert.equal([[holdfast break -- '-$(rm) '\''x'\']], seen["break"])
    end)

    it("sorts by lease or token, with equal locks by hold and key", function()
      start {}
      local at = os.time() - 10
      write_lock { key = "b", ttl = 500000, token = at * 1e6 }
      write_lock { key = "a", ttl = 600000, token = (at - 5) * 1e6 }
      write_lock { key = "c", ttl = 400000 }
      comes_to_show(3)
      for query, wanted in pairs {
        ["sort=ttl"] = "c b a", ["sort=ttl&reverse"] = "a b c", ["sort=token"] = "a b c",
        ["sort=token&reverse"] = "c b a", ["sort=holder"] = "a b c", ["sort=waiters"] = "a b c",
        ["sort=nothing"] = "a b c", ["sort=key&sort=ttl"] = "a b c", ["from=x"] = "a b c",
        ["from=1&sort=key"] = "b c", ["search=a&search=b"] = "a b c", ["prefix"] = "a b c",
        ["from=1e9"] = "a b c", ["from=999999999"] = "",
      } do assert.equal(wanted, order("&" .. query), query) end
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
      eventually(function() return scans() - from >= 4 * count / 500 end, 60)
      local now
      eventually(function()
        now = state()
        return now.complete
      end, 60)
      assert.equal(count, now.count)
      assert.same({}, { now.looked, now.keys })
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

    it("never blocks the server for 5 ms with 10,000 locks, and neither does the command #check", function()
      start {}
      lock_many(server)
      assert.matches("us: EVAL", slowest(server, function() -- slow commands are noticed
        server:cli("EVAL", "for i = 1, 1e7 do end", 0)
      end))
      comes_to_show(10000, 60)
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
      comes_to_show(10000, 120)
      for _, each in ipairs(servers) do
        state()
        assert.is_nil(each:cli("INFO", "commandstats"):find("cmdstat_type:", 1, true))
      end
      for _, each in ipairs(servers) do
        each:cli("EVAL", "for i = 1, 9000 do redis.call('DEL', 'many:' .. i) end", 0)
      end
      comes_to_show(1000, 120)
      stop()
      for _, each in ipairs(servers) do each:stop() end
    end)
  end)
end)
