-- The page of holdfast.status in a real browser, headless Chromium, by the WebDriver protocol. make
-- check runs it; the screenshots stay in build/status.

local command = require "spec.support.command"
local dkjson = require "dkjson"
local holdfast = require "holdfast"
local http = require "socket.http"
local ltn12 = require "ltn12"
local mime = require "mime"
local nginx = require "spec.support.nginx"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local sys = require "spec.support.sys"

local PATIENCE = 60
local JAVA = "b983c153-7421-469a-addb-44fb92259a1b:1"

local function free_port()
  local fd, port = assert(sys.listen_tcp())
  sys.close(fd)
  return port
end

-- ---- a browser ----

local Browser = {}
Browser.__index = Browser

function Browser:call(method, path, body)
  local parts, text = {}, body and dkjson.encode(body)
  local ok, status = http.request {
    url = ("http://127.0.0.1:%d%s"):format(self.port, path), method = method,
    sink = ltn12.sink.table(parts),
    source = text and ltn12.source.string(text),
    headers = { ["Content-Type"] = "application/json", ["Content-Length"] = text and #text or 0 },
  }
  local reply = ok and dkjson.decode(table.concat(parts))
  if not ok or status ~= 200 then return nil, ("%s: %s"):format(status, table.concat(parts)) end
  if reply.value == nil then return true end
  return reply.value
end

function Browser:run(script)
  return self:call("POST", self.session .. "/execute/sync",
    { script = script, args = setmetatable({}, { __jsontype = "array" }) })
end

function Browser:screenshot(name)
  local path = "build/status/" .. name .. ".png"
  local file = assert(io.open(path, "wb"))
  file:write((mime.unb64(assert(self:call("GET", self.session .. "/screenshot")))))
  file:close()
  return path
end

function Browser:stop()
  if self.session then self:call("DELETE", self.session) end
  self.driver:kill("TERM")
  self.driver:wait(PATIENCE)
end

local function open_browser(width, height, dark)
  local port = free_port()
  local self = setmetatable({ port = port }, Browser)
  self.driver = process.start { "chromedriver", "--port=" .. port, env = { LD_PRELOAD = false } }
  assert(process.wait_until(function()
    return self:call("GET", "/status")
  end, PATIENCE), self.driver:output())
  local args = { "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
    ("--window-size=%d,%d"):format(width, height) }
  if dark then args[#args + 1] = "--blink-settings=preferredColorScheme=0" end
  local made = assert(self:call("POST", "/session", { capabilities = { alwaysMatch = {
    browserName = "chrome",
    ["goog:loggingPrefs"] = { browser = "ALL" },
    ["goog:chromeOptions"] = {
      args = args,
      mobileEmulation = width < 500 and { deviceMetrics = { width = width, height = height,
        pixelRatio = 1 } } or nil,
    },
  } } }))
  self.session = "/session/" .. made.sessionId
  return self
end

-- ---- the page ----

describe("the status page in a browser", function()
  local server, front, client, browser

  setup(function() os.execute("mkdir -p build/status") end)

  before_each(function()
    server = redis.start()
    client = holdfast.new { url = server:url(), name = "lua-owner" }
    front = nginx.start {
      tcp = true,
      http = ([[
        lua_shared_dict holdfast 1m;
        init_by_lua_block { CLIENT = require("holdfast").new { url = "%s" } }
      ]]):format(server:url()),
      server = 'location /status { content_by_lua_block { require("holdfast").status { client = CLIENT } } }',
    }
  end)

  after_each(function()
    if browser then browser:stop() end
    browser = nil
    front:stop("TERM")
    client:close()
    server:stop()
  end)

  local function visit(width, height, dark, query)
    browser = open_browser(width, height, dark)
    assert(browser:call("POST", browser.session .. "/url",
      { url = ("http://127.0.0.1:%d/status%s"):format(front.port, query or "") }))
    assert.equal("holdfast", browser:call("GET", browser.session .. "/title"))
  end

  local function text() return assert(browser:run("return document.body.innerText")) end

  local function rows()
    return assert(browser:run("return document.querySelectorAll('#locks tr').length"))
  end

  local function shows(pattern, seconds)
    return process.wait_until(function() return text():find(pattern) end, seconds or PATIENCE)
  end

  -- Errors of scripts, refused resources and the like.
  local function complaints()
    local list = {}
    for _, entry in ipairs(browser:call("POST", browser.session .. "/se/log", { type = "browser" })
        or {}) do
      if not entry.message:find("favicon", 1, true) then list[#list + 1] = entry.message end
    end
    return list
  end

  it("shows a lock of a job, of Java and of Lua, and its queue", function()
    visit(1200, 900)
    assert(shows("0 locks"))
    local function appears_within_a_second(key, take)
      local best
      for _ = 1, 5 do -- the machine may be busy; one of a few has to do
        local release = take()
        local began = process.now()
        assert(shows(key), text())
        local took = process.now() - began
        best = math.min(best or took, took)
        release()
        if best < 1 then break end
        assert(process.wait_until(function() return rows() == 0 end, PATIENCE))
      end
      assert.is_true(best < 1, ("%s came after %.2f s"):format(key, best))
    end
    appears_within_a_second("from:lua", function()
      local lock = assert(client:lock("from:lua"):acquire())
      return function() lock:release() end
    end)
    appears_within_a_second("from:java", function()
      server:cli("EVAL", "redis.call('HSET', 'from:java', ARGV[1], 1) redis.call('PEXPIRE', 'from:java', 30000)", 0, JAVA)
      return function() server:cli("DEL", "from:java") end
    end)
    appears_within_a_second("from:job", function()
      local job = command.start(server, { "run", "--name", "nightly", "from:job", "--", "sh", "-c",
        "echo ready; exec sleep 60" })
      assert(job:wait_output("ready", PATIENCE))
      return function()
        job:kill("TERM")
        job:wait(PATIENCE)
      end
    end)
    local lock = assert(client:lock("orders:1"):acquire())
    server:cli("EVAL", "redis.call('HSET', 'java:2', ARGV[1], 1) redis.call('PEXPIRE', 'java:2', 30000)", 0, JAVA)
    local waiter = command.start(server, { "run", "--name", "patient", "orders:1", "--", "true" })
    assert(shows("pid %d+ lua%-owner"), text())
    assert(shows("2 locks, 1 waiting"), text())
    assert.is_nil(text():find("patient", 1, true))
    browser:run("document.querySelector('tr[data-key=\"orders:1\"]').focus();" ..
      "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', bubbles: true}))")
    assert(shows("pid " .. waiter.pid .. " patient, for"), text())
    assert(shows("protect it"))
    assert.equal(120, browser:run("return document.querySelectorAll('#waits rect').length"))
    browser:screenshot("wide")
    browser:run("document.getElementById('prefix').value = 'java'")
    assert(process.wait_until(function() return rows() == 1 end, PATIENCE))
    browser:run("document.dispatchEvent(new KeyboardEvent('keydown', {key: '/', bubbles: true}))")
    assert.equal("prefix", browser:run("return document.activeElement.id"))
    browser:run("document.getElementById('prefix').value = ''")
    local both = client:read_write_lock("catalogue")
    assert(both:read():acquire())
    local permit = assert(client:semaphore("payments", { permits = 3 }):acquire(2))
    assert(shows("lua%-owner %(reads%)"), text())
    assert(shows("2 of 3 permits"), text())
    permit:release()
    both:read():release()
    assert.same({}, complaints())
    lock:release()
    waiter:wait(PATIENCE)
  end)

  it("reads well on a phone in the dark", function()
    local lock = assert(client:lock("a-rather-long-key:with:many:parts:2026-11-22:0000000000000001"):acquire())
    visit(390, 844, true)
    assert(shows("a%-rather%-long%-key"))
    assert(shows("lua%-owner"))
    assert.is_true(browser:run("return document.documentElement.scrollWidth <= window.innerWidth"))
    -- a lock is a card: each value has a line of its own, behind its name
    assert.is_true(browser:run("return [...document.querySelectorAll('#locks td')].every(cell => " ..
      "cell.getBoundingClientRect().width > 0.8 * window.innerWidth)"))
    assert.equal('"TTL"', browser:run(
      "return getComputedStyle(document.querySelectorAll('#locks td')[3], '::before').content"))
    assert.is_true(browser:run("return matchMedia('(prefers-color-scheme: dark)').matches"))
    assert.equal("rgb(20, 24, 30)", browser:run("return getComputedStyle(document.body).backgroundColor"))
    browser:screenshot("phone")
    assert.same({}, complaints())
    lock:release()
  end)
end)
