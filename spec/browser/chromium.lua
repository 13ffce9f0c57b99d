-- A headless Chromium by the WebDriver protocol, whose window, colours and network can be changed
-- while it runs.

local dkjson = require "dkjson"
local http = require "socket.http"
local ltn12 = require "ltn12"
local mime = require "mime"
local process = require "spec.support.process"

local PATIENCE = 60
local NO_ARGS = setmetatable({}, { __jsontype = "array" })

local chromium = {}

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
  local reply = ok and dkjson.decode(table.concat(parts), 1, dkjson.null)
  if not ok or status ~= 200 then return nil, ("%s: %s"):format(status, table.concat(parts)) end
  if reply.value == nil then return true end
  return reply.value
end

-- Runs the body of a function in the page. → what it returns
function Browser:run(script, ...)
  local args = select("#", ...) > 0 and { ... } or NO_ARGS
  local value, message = self:call("POST", self.session .. "/execute/sync",
    { script = script, args = args })
  if value == nil then error(message, 2) end
  return value
end

-- A command of the DevTools protocol.
function Browser:tell(command, params)
  return assert(self:call("POST", self.session .. "/goog/cdp/execute", {
    cmd = command, params = params or setmetatable({}, { __jsontype = "object" }),
  }))
end

function Browser:go(url) assert(self:call("POST", self.session .. "/url", { url = url })) end

-- "light" or "dark"
function Browser:colours(scheme)
  self:tell("Emulation.setEmulatedMedia", {
    features = { { name = "prefers-color-scheme", value = scheme } },
  })
end

function Browser:resize(width, height, scale)
  self:tell("Emulation.setDeviceMetricsOverride", {
    width = width, height = height, deviceScaleFactor = scale or 1, mobile = width < 500,
  })
end

-- As a mouse does it.
function Browser:click(selector)
  local found = assert(self:call("POST", self.session .. "/element",
    { using = "css selector", value = selector }))
  local _, id = next(found)
  assert(self:call("POST", ("%s/element/%s/click"):format(self.session, id), { x = 0 }))
end

-- Keys as a keyboard sends them to what has the focus; "\u{E004}" is Tab, and so on.
function Browser:press(...)
  local actions = {}
  for _, key in ipairs { ... } do
    actions[#actions + 1] = { type = "keyDown", value = key }
    actions[#actions + 1] = { type = "keyUp", value = key }
  end
  assert(self:call("POST", self.session .. "/actions", {
    actions = { { type = "key", id = "keys", actions = actions } },
  }))
end

function Browser:screenshot(path)
  local file = assert(io.open(path, "wb"))
  file:write((mime.unb64(assert(self:call("GET", self.session .. "/screenshot")))))
  file:close()
end

-- What the browser has logged since the last call: errors of scripts, refused resources.
function Browser:complaints()
  local list = {}
  for _, entry in ipairs(self:call("POST", self.session .. "/se/log", { type = "browser" })) do
    if not entry.message:find("favicon", 1, true) then list[#list + 1] = entry.message end
  end
  return list
end

function Browser:stop()
  if self.session then self:call("DELETE", self.session) end
  self.driver:kill("TERM")
  self.driver:wait(PATIENCE)
end

function chromium.open()
  local self = setmetatable({ port = process.free_port() }, Browser)
  self.driver = process.start { "chromedriver", "--port=" .. self.port, env = { LD_PRELOAD = false } }
  assert(process.wait_until(function() return self:call("GET", "/status") end, PATIENCE),
    self.driver:output())
  local made = assert(self:call("POST", "/session", { capabilities = { alwaysMatch = {
    browserName = "chrome",
    ["goog:loggingPrefs"] = { browser = "ALL" },
    ["goog:chromeOptions"] = { args = {
      "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
      "--window-size=1280,900",
    } },
  } } }))
  self.session = "/session/" .. made.sessionId
  return self
end

return chromium
