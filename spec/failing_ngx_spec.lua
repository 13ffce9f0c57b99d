-- Calls of ngx_lua that fail under the nginx loop: each kind returns an error, raises one or does
-- nothing, in its first call, its second, …, or in all from then on. Callers return. When the calls
-- succeed again, the client works, and nothing is left: no lock, no waiter, no connection.

local nginx = require "spec.support.nginx"
local process = require "spec.support.process"
local redis = require "spec.support.redis"

if not nginx.is_there() then return end

local IS_LONG = os.getenv("HOLDFAST_FAILING_NGX") -- how many calls are each the first to fail
local MOST = tonumber(IS_LONG) or 1
local PATIENCE = 10 -- seconds; until then callers have returned, and the client works again

-- { the name of the call, what it does instead }; "raise" raises an error. `once`: no worker would
-- work if each call failed. `closing`: the call is made when the client is closed, and fails after
-- its work is done.
local FAULTS = {
  { "timer", 'nil, "too many pending timers"' }, { "timer", "1" }, -- it never begins
  { "timer", "raise" },
  { "spawn", "raise" },
  { "kill", 'nil, "already waited or killed"', closing = true },
  { "sleep", "raise" },
  { "socket", "raise" },
  { "socket.connect", 'nil, "connection refused"' }, { "socket.connect", "raise" },
  { "socket.settimeouts", "raise" },
  { "socket.send", 'nil, "broken pipe"' }, { "socket.send", "raise" },
  { "socket.receiveany", 'nil, "closed"' }, { "socket.receiveany", 'nil, "socket busy reading"' },
  { "socket.receiveany", "raise" },
  { "socket.close", 'nil, "closed"', closing = true },
  { "semaphore", 'nil, "no memory"' }, { "semaphore", "raise" },
  { "semaphore.wait", 'nil, "timeout"', once = true }, { "semaphore.wait", "raise" },
  { "semaphore.post", "raise", once = true },
}

-- Two callers of one lock, a third one after the fault, and the end of their client. Says how many
-- of the two have returned, whether the third one got the lock, and how many calls there were.
local SERVER = [[
  location /attempt { content_by_lua_block {
    local of = ngx.req.get_uri_args()
    local client = HOLDFAST.new { url = URL, command_timeout = 0.1, connect_timeout = 0.1,
      fencing = false }
    local returned, lock = 0, client:lock(of.key)
    local act = assert(loadstring(of.act == "raise" and "error('broken', 0)" or "return " .. of.act))
    FAILING.fault { call = of.call, nth = tonumber(of.nth), lasts = of.lasts == "true", act = act,
      behind = of.closing == "true" }
    local function call(fn)
      FAILING.spawn(function()
        pcall(fn)
        returned = returned + 1
      end)
    end
    call(function() if lock:acquire(0.1) then lock:release() end end)
    call(function() client:with_lock(of.key, { wait = 0.1 }, function() end) end)
    local function await(is_true)
      local till = FAILING.now() + tonumber(of.patience)
      while not is_true() and FAILING.now() < till do FAILING.sleep(0.005) end
    end
    await(function() return returned == 2 end)
    local closing = of.closing == "true"
    local calls, works = not closing and FAILING.fault(), false
    await(function()
      works = lock:acquire(1) and true or false
      return works
    end)
    client:close()
    ngx.say(returned, " ", tostring(works), " ", closing and FAILING.fault() or calls)
  } }
  location /send { content_by_lua_block {
    local client = HOLDFAST.new { url = URL, command_timeout = 20 }
    assert(client:ping())
    FAILING.fault { call = "socket.send", nth = 1, act = function() return nil, "broken pipe" end }
    local begun = FAILING.now()
    ngx.say(tostring(client:ping() ~= nil), " ", FAILING.fault(), " ", FAILING.now() - begun < 10)
    client:close()
  } }
  location /stuck { content_by_lua_block {
    local now = require("holdfast.core").now
    local client, holder = HOLDFAST.new(URL), HOLDFAST.new { url = URL, driver = "posix" }
    local held = assert(holder:lock("stuck"):acquire(0))
    local thread = FAILING.spawn(function() return client:lock("stuck"):acquire(20) ~= nil end)
    while held:info().waiters == 0 do FAILING.sleep(0.01) end
    FAILING.fault { call = "sleep", nth = 1, act = function() FAILING.sleep(2.5) end }
    local till = now() + 1.1
    while now() < till do end
    FAILING.sleep(3)
    held:release()
    ngx.say(tostring(select(2, ngx.thread.wait(thread))), " ", client:stats().connections, " ",
      FAILING.fault())
    client:close()
    holder:close()
  } }
]]

describe("under nginx, when calls of ngx_lua fail,", function()
  local server, front

  setup(function()
    server = redis.start { tcp = true }
    front = nginx.start {
      http = ([[
        init_by_lua_block {
          FAILING = require "spec.support.failing_ngx"
          HOLDFAST = require "holdfast"
          URL = "%s"
        }
      ]]):format(server:url()),
      server = SERVER,
    }
  end)
  teardown(function()
    front:stop("TERM")
    server:stop()
  end)

  local function escape(text)
    return (text:gsub("[^%w]", function(c) return ("%%%02X"):format(c:byte()) end))
  end

  -- → what is wrong, or nil
  local function attempt(fault, nth, lasts)
    local call, act = fault[1], fault[2]
    local key = ("%s does %s, %d%s"):format(call, act, nth, lasts and " and later" or "")
    local path = ("/attempt?call=%s&act=%s&nth=%d&lasts=%s&key=%s&closing=%s&patience=%d")
      :format(call, escape(act), nth, tostring(lasts), escape(key), tostring(fault.closing),
        PATIENCE)
    local response = front:begin(path):finish(3 * PATIENCE)
    local said, works, calls = (response and response.body or "?"):match("^(%d+) (%a+) (%d+)\n$")
    if said ~= "2" then return ("%s: %s of 2 callers have returned"):format(key, said or "?") end
    if works ~= "true" then return key .. ": the client does not work again" end
    if nth == 1 and calls == "0" then return key .. ": there was no such call" end
  end

  -- In `make test`, either one call fails or all do, in turn.
  it("every call returns and no lock is left", function()
    local failures = {}
    for i, fault in ipairs(FAULTS) do
      for nth = 1, MOST do
        local both, lasting = IS_LONG ~= nil, i % 2 == 0
        if both or not lasting or fault.once then
          failures[#failures + 1] = attempt(fault, nth, false)
        end
        if (both or lasting) and not fault.once then
          failures[#failures + 1] = attempt(fault, nth, true)
        end
      end
    end
    assert.same({}, failures)
    local function left() return server:leaks "* does *" end
    process.wait_until(function() return #left().keys == 0 and left().clients == 0 end, 10)
    assert.same({ keys = {}, channels = {}, clients = 0 }, left())
  end)

  -- A late task pauses, and its successor has its own connections.
  it("a stuck task is replaced, and closes its connections once it runs again", function()
    local said
    for _ = 1, 3 do -- on a busy machine the task may not become late
      said = front:get("/stuck").body
      if said:find "^true 4 [1-9]" then break end
    end
    assert.matches("^true 4 [1-9]", said)
    process.wait_until(function() return server:leaks().clients == 0 end, 10)
    assert.equal(0, server:leaks().clients)
  end)

  it("a request that could not be sent is sent again at once, not after command_timeout", function()
    local ok, calls, soon = front:get("/send").body:match("^(%a+) (%d+) (%a+)\n$")
    assert.same({ "true", "true", true }, { ok, soon, tonumber(calls) > 1 })
  end)
end)
