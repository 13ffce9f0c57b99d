-- Runs spec/chaos/proxy.c, which describes the commands, in front of a server.

local process = require "spec.support.process"
local sys = require "spec.support.sys"

local ANSWER_TIMEOUT = 5

local Proxy = {}
Proxy.__index = Proxy

local proxy = {}

-- Starts a proxy for the server at this path or port, listening on a loopback port, by default any
-- free one.
function proxy.start(server_path, port)
  local self = setmetatable({ directory = process.directory() }, Proxy)
  local control = self.directory .. "/control"
  self.process = process.start {
    process.build .. "/chaos/proxy", tostring(port or 0), server_path, control,
    env = { LD_PRELOAD = false }, output = self.directory .. "/output",
  }
  local ready = assert(self.process:wait_output("ready (%d+)\n", 5), self.process:output())
  self.port, self.url = tonumber(ready), "redis://127.0.0.1:" .. ready
  self.control = assert(sys.connect_unix(control))
  return self
end

local function ask(self, command)
  assert(sys.write(self.control, command .. "\n", ANSWER_TIMEOUT))
  return assert(sys.read(self.control, ANSWER_TIMEOUT))
end

-- Sends a command, such as tell("stop", "up"), and returns when it is done.
function Proxy:tell(...)
  local command = table.concat({ ... }, " ")
  local answer = ask(self, command)
  assert(answer == "ok\n", command .. ": " .. answer)
end

-- Returns how many TCP segments with data the clients of the open connections have sent. What
-- earlier commands let pass has been delivered by then.
function Proxy:segments() return assert(tonumber((ask(self, "segments")))) end

function Proxy:stop()
  sys.close(self.control)
  self.process:stop()
  process.remove(self.directory)
end

return proxy
