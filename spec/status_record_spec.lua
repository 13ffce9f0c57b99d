-- What the status page stores in the shared dict.

local dkjson = require "dkjson"
local resty = require "spec.support.resty"
local status = require "spec.support.status"

if not resty.is_there() then return end

local front, stop = resty.front, resty.stop
local start = status.start
local eventually = status.eventually

describe("under ngx_lua", function()
  before_each(resty.open)
  after_each(resty.close)

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
      resty.expect_errors()
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
      resty.expect_errors()
      start { dict = "lua_shared_dict holdfast 32k; lua_shared_dict holdfast_status 1m;", more = FILL }
      local filled = front:get("/fill").body
      eventually(has_points)
      assert.equal(filled, front:get("/left").body)
      assert.is_true(dkjson.decode(front:get("/status?json").body).shared)
    end)
  end)

  describe("the status page", function()
    -- What would take minutes is tested on the record itself.
    describe("in its shared record", function()
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

      it("keeps the last ten losses for ten minutes, whatever strings they contain", function()
        assert.same({ LISTED, 0 }, ask(LOSSES .. "return listed, #other:losses()"))
        stop()
        assert.same({ LISTED, 0 }, ask(LOSSES .. "return listed, #other:losses()", ""))
      end)

      it("keeps no losses older than ten minutes", function()
        assert.same({ 1, "new" }, ask([[
          for _, age in ipairs { 601, 590 } do
            record:add_loss { time = ngx.now() - age, key = age > 600 and "old" or "new" }
          end
          local list = record:losses()
          return #list, list[1].key
        ]], ""))
        stop()
        assert.same({ true }, ask [[
          record:add_loss { time = ngx.now(), key = "k", reason = "deleted", class = "c",
            owner = "o", pid = 1 }
          local left = dict:ttl(name .. "loss 1")
          return left > 590 and left <= 600
        ]])
      end)

      local POINTS = [[
        record:add_point(1000, 3)
        record:add_point(1000, 1)
        record:add_point(1005, 4)
        local list = { record:point(1000), record:point(1005), other:point(1000) or "none", record:point(1010) or "none" }
      ]]

      it("keeps each interval's highest number of waiters for ten minutes", function()
        assert.same({ { 3, 4, "none", "none" }, true }, ask(POINTS .. [[
          return list, math.abs(dict:ttl(name .. 1000) - 605) < 5
        ]]))
        stop()
        assert.same({ { 3, 4, "none", "none" }, 3, "none" }, ask(POINTS .. [[
          record:add_point(1600, 0)
          local kept = record:point(1000)
          record:add_point(1605, 0)
          return list, kept, record:point(1000) or "none"
        ]], ""))
      end)

      it("keeps a lease for the reading worker, which renews it and releases it on exit", function()
        assert.same({ { true, false, true, true }, true, { false, true }, { true, false } }, ask [[
          local second = records.new("id")
          local list = { record:take_lease(), second:take_lease(), record:take_lease(), other:take_lease() }
          dict:expire(name .. "lease", 1)
          record:take_lease()
          local left = dict:ttl(name .. "lease")
          local renewed = left > 4 and left <= 5
          second:give_up_lease()
          local others = { second:take_lease(), record:take_lease() }
          record:give_up_lease()
          return list, renewed, others, { second:take_lease(), record:take_lease() }
        ]])
        stop()
        assert.same({ true, true }, ask("return record:take_lease(), records.new('id'):take_lease()", ""))
      end)

      it("passes requests to the worker that reads the server, and answers each once", function()
        resty.expect_errors()
        assert.same({ { "a", 503 }, { "b", 200 }, "none", { "a", "b", "none" }, "none" }, ask [[
          local asks, answers, seen = records.new("id"), {}, {}
          local function put(question, number)
            return ngx.thread.spawn(function()
              answers[number] = { asks:request(question, function() return false end) }
            end)
          end
          local threads = { put("a", 1), put("b", 2), put("a", 3) }
          for i = 1, 3 do
            seen[i] = record:next_query() or "none"
            if seen[i] ~= "none" then record:publish(seen[i], seen[i], seen[i] == "a" and 503 or 200) end
          end
          for _, thread in ipairs(threads) do ngx.thread.wait(thread) end
          -- a reply that does not fit into the dict, and a worker that reads by itself by now
          local thread = ngx.thread.spawn(function()
            answers[4] = { asks:request("c", function() return false end) }
          end)
          record:publish(record:next_query(), ("x"):rep(2000000), 200)
          ngx.thread.wait(thread)
          local mine = { asks:request("d", function() return true end) }
          return answers[1], answers[2], answers[4][1] or "none", seen, mine[1] or "none"
        ]])
      end)

      -- What a page keeps that has been open for months.
      it("keeps no outdated names or rows", function()
        assert.same({ 1, 0, 0, "answered", true, true }, ask [[
          local views, now = require "holdfast.status_view", require("holdfast.core").now()
          local view = views.new(CLIENT, "*", "here")
          view.names = { old = { at = now - 31 }, new = { at = now - 20 } }
          view.shown = { gone = now, old = now - 4 }
          views.record_request(view)
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

      it("allows one timer per worker, whatever Lua state it is in", function()
        assert.same({ true, true, false, true, true }, ask [[
          local second, list = records.new("id"), {}
          list[1], list[2], list[3] = record:claim_timer(), record:claim_timer(), second:claim_timer()
          list[4] = dict:ttl(name .. "timer " .. ngx.worker.pid()) > 4
          dict:delete(name .. "timer " .. ngx.worker.pid())
          list[5] = second:claim_timer()
          return unpack(list)
        ]])
      end)
    end)
  end)
end)
