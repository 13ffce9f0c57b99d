-- stopped_worker.lua NUMBER ROUNDS URL NGINX [DATABASE PLACE]...: a holder that is stopped between
-- its check and its write, once in each round. Then it writes, with the fence and without.

local databases = require "spec.support.databases"
local driver = require "holdfast.driver"
local holdfast = require "holdfast"
local nginx = require "spec.support.nginx"
local resp = require "spec.support.resp"
local statements = require "spec.fencing.statements"
local sys = require "spec.support.sys"

local STOP = 19
local number, rounds, url = tonumber(arg[1]), tonumber(arg[2]), arg[3]

local stores = {}
for i = 5, #arg, 2 do
  local connection = databases.connect(arg[i + 1])
  stores[#stores + 1] = { name = arg[i], all = statements.of(arg[i]), connection = connection }
end

local client = holdfast.new { url = url, command_timeout = 60 }
local redis = assert(resp.connect { path = url:match "^unix://(.*)$" })
local front = nginx.at(arg[4])
local fenced = driver.lock.fenced

-- The lock is checked, and the write is not sent.
function driver.lock.fenced(...)
  sys.kill(sys.getpid(), STOP)
  return fenced(...)
end

local function accepted(done) return done and 1 or 0 end

-- A machine that is slow may take longer than the lease.
local function acquire(lock)
  local held, message, code
  repeat held, message, code = lock:acquire(60) until held or code ~= "lost"
  return assert(held, message)
end

-- → what the store has accepted, with the fence and without
local function write(store, id, token)
  local put = { id = id, amount = 2, token = token }
  local with = statements.run(store.connection, store.all, "insert or update", put)
  local bare = ("UPDATE price SET amount = 2 WHERE id = %d"):format(-id)
  return accepted(with > 0), accepted(databases.run(store.connection, bare) == 1)
end

local function put(path, headers)
  return accepted(front:get(path, { method = "PUT", headers = headers, timeout = 60 }).status == 200)
end

for round = 1, rounds do
  local id = number * 1000 + round
  local key = "price:" .. id
  local lock = acquire(client:lock("lock:" .. key, { lease = 2 }))
  local token, headers = lock:token_text(), assert(lock:fence_headers("http:" .. key))
  local _, _, code = client:fence(key):call(lock, "SET", key, "stale")
  local bare = redis:call("SET", "bare:" .. key, "stale")
  local results = { ("redis %d %d"):format(accepted(code ~= "stale"), accepted(bare == "OK")) }
  results[2] = ("nginx %d %d"):format(put("/fenced", headers), put("/bare", headers))
  for _, store in ipairs(stores) do
    results[#results + 1] = ("%s %d %d"):format(store.name, write(store, id, token))
  end
  lock:release()
  print(("round %d %s"):format(round, table.concat(results, " ")))
  io.stdout:flush()
end
client:close()
