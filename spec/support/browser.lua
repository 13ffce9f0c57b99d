-- A headless Chromium, driven by chromedriver.

local http = require "socket.http"
local ltn12 = require "ltn12"
local process = require "spec.support.process"

local Browser = {}
Browser.__index = Browser

local browser = {}

local function quoted(text) return '"' .. text:gsub('[\\"]', "\\%0"):gsub("\n", "\\n") .. '"' end

-- → the text of the response
function Browser:_post(path, body)
  local parts = {}
  local _, status = http.request {
    url = self.base .. path, method = "POST", source = ltn12.source.string(body),
    sink = ltn12.sink.table(parts),
    headers = { ["content-type"] = "application/json", ["content-length"] = #body },
  }
  local text = table.concat(parts)
  assert(status == 200, ("chromedriver: %s: %s"):format(status, text:sub(1, 500)))
  return text
end

local CAPABILITIES = [[{"capabilities": {"alwaysMatch": {"goog:loggingPrefs": {"browser": "ALL"}, "goog:chromeOptions":
  {"args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,800"]%s}}}}]]
local PHONE = [[, "mobileEmulation": {"deviceMetrics": {"width": 375, "height": 667, "pixelRatio": 2, "touch": true}}]]

-- `kind`: "phone", 375 pixels wide, or "desktop", 1280. The result must be closed.
function browser.open(kind)
  local driver = process.start { "chromedriver", "--port=0" }
  local port = assert(driver:wait_output("successfully on port (%d+)", 20), driver:output())
  local self = setmetatable({ driver = driver, base = "http://127.0.0.1:" .. port }, Browser)
  local answer = self:_post("/session", CAPABILITIES:format(kind == "phone" and PHONE or ""))
  self.session = "/session/" .. answer:match('"sessionId":"(%x+)"')
  return self
end

function Browser:go(url) self:_post(self.session .. "/url", ('{"url": %s}'):format(quoted(url))) end

-- Runs a function's body that returns a list of strings. → the list
function Browser:run(body)
  local script = ("return (function () { %s })().map(encodeURIComponent).join(' ');"):format(body)
  local answer = self:_post(self.session .. "/execute/sync",
    ('{"script": %s, "args": []}'):format(quoted(script)))
  local list = {}
  for word in answer:match('"value":"([^"]*)"'):gmatch("%S+") do
    list[#list + 1] = word:gsub("%%(%x%x)", function(code)
      return string.char(tonumber(code, 16))
    end)
  end
  return list
end

-- Returns what the pages have logged since the last call, as chromedriver writes it; "" if nothing.
function Browser:log()
  return self:_post(self.session .. "/se/log", '{"type": "browser"}'):match('"value":%[(.*)%]')
end

function Browser:close()
  http.request { url = self.base .. self.session, method = "DELETE" }
  self.driver:stop()
end

return browser
