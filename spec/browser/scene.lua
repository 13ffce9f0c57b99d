-- A server with locks of many kinds that real processes hold and wait for, and the status page of
-- an nginx beside it: for the browser's specs and for the pictures in the documents.

local files = require "spec.support.files"
local holdfast = require "holdfast"
local nginx = require "spec.support.nginx"
local process = require "spec.support.process"
local redis = require "spec.support.redis"

local scene = {}

local Scene = {}
Scene.__index = Scene

-- Acquires the lock of this kind and holds it for some seconds, again and again.
local WORKER = [[
  local holdfast, sleep = require "holdfast", require("spec.support.process").sleep
  local url, name, kind, key, seconds, pause = (table.unpack or unpack)(arg)
  local client = holdfast.new { url = url, name = name }
  local lock = client[kind](client, key, kind == "semaphore" and { permits = 5, wait = 3600 } or { wait = 3600 })
  if kind == "read_write_lock" then lock = lock:read() end
  while true do
    local hold = assert(lock:acquire())
    sleep(tonumber(seconds))
    hold:release()
    sleep(tonumber(pause))
  end
]]

-- Takes one lock, then waits for the other one.
local PARTY = [[
  local holdfast, sleep = require "holdfast", require("spec.support.process").sleep
  local client = holdfast.new { url = arg[1], name = arg[2] }
  assert(client:lock(arg[3]):acquire(10))
  sleep(1)
  client:lock(arg[4]):acquire(3600)
  sleep(3600)
]]

local function is_root()
  local pipe = assert(io.popen("unshare --uts true 2>&1"))
  local output = pipe:read("*a")
  pipe:close()
  return output == ""
end

-- Starts a process on a host of this name, as far as one may be made here.
function Scene:start(host, code, ...)
  local path = process.directory() .. "/worker.lua"
  files.write(path, code)
  local words = { "luajit", path, self.server:url(), ... }
  if self.hosts then
    words = { "unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', host, unpack(words) }
  end
  words.env = { LUA_PATH = process.lua_path, LUA_CPATH = process.lua_cpath, LUA_INIT = false }
  self.processes[#self.processes + 1] = process.start(words)
  return self.processes[#self.processes]
end

-- `kind`: the client's method; holds the lock for `seconds`, and then pauses.
function Scene:worker(host, name, kind, key, seconds, pause)
  return self:start(host, WORKER, name, kind, key, tostring(seconds), tostring(pause or 0))
end

-- Two that wait for each other.
function Scene:deadlock(one, other)
  self:start("web-1", PARTY, "transfer", one, other)
  self:start("web-2", PARTY, "transfer", other, one)
end

local BUSY = {
  { "web-1", "checkout", "lock", "order:104711", 3600 },
  { "web-2", "checkout", "lock", "order:104711", 3600 },
  { "web-3", "support", "lock", "order:104711", 3600 },
  { "db-1", "nightly-backup", "lock", "backup:orders-db", 3600 },
  { "web-1", "stock", "lock", "stock:sku-20419", 0.5 }, { "web-2", "stock", "lock", "stock:sku-20419", 0.7 },
  { "web-3", "stock", "lock", "stock:sku-20419", 0.4 }, { "web-4", "stock", "lock", "stock:sku-20419", 0.9 },
  { "jobs-1", "invoices", "lock", "cron:invoices:2026-11", 3600 },
  { "jobs-2", "invoices", "lock", "cron:invoices:2026-11", 3600 },
  { "web-2", "catalogue", "read_write_lock", "catalogue:prices", 3600 },
  { "web-3", "catalogue", "read_write_lock", "catalogue:prices", 3600 },
  { "jobs-1", "payouts", "semaphore", "payments:gateway", 3600 },
  { "jobs-2", "payouts", "semaphore", "payments:gateway", 3600 },
  { "media-1", "thumbnails", "mutex", "media:import", 3600 },
  { "jobs-1", "mailer", "fair_lock", "mail:newsletter", 3600 },
  { "jobs-2", "search-index", "lock", "search:reindex:products", 3600 },
}

-- Starts many processes.
function Scene:fill() for _, worker in ipairs(BUSY) do self:worker(unpack(worker)) end end

-- Sets many locks that nobody holds: `count` of them, named many:00001 and so on.
function Scene:forge(count)
  self.server:cli("EVAL", [[
    for i = 1, tonumber(ARGV[1]) do
      local key = ("many:%05d"):format(i)
      redis.call("HSET", key, "b983c153-7421-469a-addb-44fb92259a1b:" .. i, 1)
      redis.call("PEXPIRE", key, 600000)
    end
  ]], "0", tostring(count))
end

function Scene:url(path)
  return ("http://127.0.0.1:%d/locks%s"):format(self.front.port, path or "")
end

function Scene:stop()
  for _, each in ipairs(self.processes) do each:kill("KILL") end
  for _, each in ipairs(self.processes) do each:wait(10) end
  self.front:stop("TERM")
  self.client:close()
  self.server:stop()
end

-- `options`: { more = further locations, which find URL and CLIENT, dict = false: without one }
function scene.new(options)
  local self = setmetatable({ processes = {}, hosts = is_root() }, Scene)
  self.server = redis.start { tcp = true }
  self.client = holdfast.new { url = self.server:url(), name = "lua-owner" }
  local dict = options and options.dict == false and "" or "lua_shared_dict holdfast 1m;"
  self.front = nginx.start {
    tcp = true,
    http = ([[
      %s
      init_by_lua_block { URL = "%s" CLIENT = require("holdfast").new { url = URL } }
    ]]):format(dict, self.server:tcp_url()),
    server = [[
      location /locks {
        content_by_lua_block { require("holdfast").status { client = CLIENT } }
      }
    ]] .. (options and options.more or ""),
  }
  return self
end

return scene
