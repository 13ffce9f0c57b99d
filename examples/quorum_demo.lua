-- Five independent servers, and a lock that a majority of them holds. Servers die one after another
-- until there is no majority. Then one comes back, and the lock can be acquired again.
--
-- make demo-quorum starts separate redis-servers for it on private unix sockets.

local holdfast = require "holdfast"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local stage = require "spec.support.stage"

local LEASE = 2

local say, verdict = stage.say, stage.verdict

local Demo = {}
Demo.__index = Demo

-- "s1 s2 -- s4 --": which of them are alive
function Demo:living()
  local marks = {}
  for i, server in ipairs(self.servers) do marks[i] = server:is_running() and "s" .. i or "--" end
  return table.concat(marks, " ")
end

-- Replaces the long paths of sockets by s1 to s5.
function Demo:short(text)
  for i, server in ipairs(self.servers) do
    local at, stop = text:find("unix:" .. server.path, 1, true)
    if at then text = text:sub(1, at - 1) .. "s" .. i .. text:sub(stop + 1) end
  end
  return text
end

function Demo:standing()
  local count = 0
  for _, server in ipairs(self.servers) do
    if server:is_running() and server:cli("EXISTS", "sale") == 1 then count = count + 1 end
  end
  return count
end

function Demo:kill(...)
  for _, i in ipairs { ... } do self.servers[i]:kill() end
end

-- Acquires and releases the lock. → what happened, whether the token has grown
function Demo:use_lock(wait)
  local from = process.now()
  local held, message, code = self.lock:acquire(wait)
  if not held then return nil, self:short(message), code end
  local token, grown = self.lock:token(), self.lock:token() > self.token
  self.token = token
  assert(self.lock:release())
  return ("acquired and released in %.1f ms, fencing token %d%s"):format((process.now()
    - from) * 1e3, token,
    grown and "" or ", which has not grown"), grown
end

function Demo:expect_lock(wait)
  local text, good = self:use_lock(wait)
  verdict(text and good, text or good)
end

function Demo:expect_none()
  local text, message, code = self:use_lock(0)
  verdict(not text and code == "no_quorum", text or ("%s: %s"):format(code, message))
end

local function all_alive(demo)
  say("1. five servers           %s", demo:living())
  demo:expect_lock(1)
end

local function two_die(demo)
  assert(demo.lock:acquire(1))
  demo:kill(2, 4)
  say("2. two die, while the lock is held   %s", demo:living())
  process.sleep(LEASE * 1.5)
  verdict(demo.lock:is_held(), ("%.1f s later it is still held: the other three renew it"):format(LEASE * 1.5))
  assert(demo.lock:release())
  demo:expect_lock(1)
end

local function a_third_dies(demo)
  assert(demo.lock:acquire(1))
  demo:kill(3)
  local from = process.now()
  say("3. a third dies, while the lock is held   %s", demo:living())
  assert(process.wait_until(function() return not demo.lock:is_held() end, LEASE + 10))
  verdict(demo.lock:lost() ~= nil,
    ("%.1f s later the holder learns of it: lost, %s"):format(process.now() - from, demo.lock:lost()))
  demo.lock:release()
  assert(process.wait_until(function() return demo:standing() == 0 end, 10))
  demo:expect_none()
  local gone = process.wait_until(function() return demo:standing() == 0 end, 5)
  verdict(gone, "nothing is left on the two live servers")
end

local function one_returns(demo)
  demo.servers[3]:restart(false)
  say("4. one comes back, empty   %s", demo:living())
  demo:expect_lock(5)
end

local demo = setmetatable({ servers = redis.several(5), token = 0 }, Demo)
local ok, err = xpcall(function()
  local urls = {}
  for i, server in ipairs(demo.servers) do urls[i] = server:url() end
  local client = holdfast.new { servers = urls, mode = "quorum", lease = LEASE,
    command_timeout = 0.5 }
  demo.lock = client:lock("sale")
  all_alive(demo)
  two_die(demo)
  a_third_dies(demo)
  one_returns(demo)
  client:close()
end, debug.traceback)
for _, server in ipairs(demo.servers) do server:stop() end
if not ok then io.stderr:write(err, "\n") end
os.exit(ok and stage.failures == 0 and 0 or 1, true)
