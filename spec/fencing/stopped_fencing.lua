-- Holders that are stopped past their lease between the check and the write, and go on after the
-- next holder has written: make fencing. $HOLDFAST_HOLDERS of them, 1000 unless it is set.

local databases = require "spec.support.databases"
local holdfast = require "holdfast"
local nginx = require "spec.support.nginx"
local process = require "spec.support.process"
local statements = require "spec.fencing.statements"
local world = require("spec.support.world").new()

local unpack = table.unpack or unpack

local AT_ONCE = 50
local HOLDERS = tonumber(os.getenv "HOLDFAST_HOLDERS" or 1000)
local ROUNDS = math.ceil(HOLDERS / AT_ONCE)

local function is_stopped(pid)
  local file = io.open(("/proc/%d/stat"):format(pid))
  local state = file and file:read("*a"):match "%) (%u)"
  if file then file:close() end
  return state == "T"
end

-- The worker goes on meanwhile.
local function await(worker, look)
  assert(process.wait_until(function()
    assert(worker:status() == nil or look(), worker:output())
    return look()
  end, 120), "a worker is late")
end

local servers, stores = {}, {}

-- → the words for the workers
local function start_databases()
  local words = {}
  for _, name in ipairs(databases.names) do
    local server, missing = databases.start(name)
    assert(server or not os.getenv "HOLDFAST_DATABASES", missing)
    if server then
      servers[#servers + 1] = server
      local connection = databases.connect(server.place)
      local store = { name = name, all = statements.of(name), connection = connection }
      statements.prepare(store.connection, store.all)
      stores[#stores + 1], words[#words + 1], words[#words + 2] = store, name, server.place
    end
  end
  return words
end

local NGINX = [[
  location = /fenced {
    access_by_lua_block { HOLDFAST.fence { client = CLIENT } }
    content_by_lua_block { ngx.say "in" }
  }
  location = /bare { content_by_lua_block { ngx.say "in" } }
]]

local function start_nginx()
  return nginx.start { workers = 2, server = NGINX, http = ([[init_by_lua_block {
    HOLDFAST = require "holdfast"
    CLIENT = HOLDFAST.new { url = "%s", command_timeout = 60 }
  }]]):format(world.server:url()) }
end

-- The next holder: it has the lock when the lease of the stopped one has ended.
local function write(client, front, id)
  local key = "price:" .. id
  local lock = assert(client:lock("lock:" .. key):acquire(60))
  assert(client:fence(key):call(lock, "SET", key, "new"))
  world.cli("SET", "bare:" .. key, "new")
  for _, store in ipairs(stores) do
    local put = { id = id, amount = 1, token = lock:token_text() }
    assert(statements.run(store.connection, store.all, "insert or update", put) > 0)
    local bare = ("INSERT INTO price (id, amount) VALUES (%d, 1)"):format(-id)
    assert(databases.run(store.connection, bare))
  end
  local headers = assert(lock:fence_headers("http:" .. key))
  assert.equal(200, front:get("/fenced", { method = "PUT", headers = headers, timeout = 60 }).status)
  assert(lock:release())
end

-- How many stale rows the store has in the end.
local function counted(store, sign)
  return databases.rows(store.connection,
    ("SELECT COUNT(*) FROM price WHERE id %s 0 AND amount = 2"):format(sign))[1][1]
end

describe("holders stopped between check and write", function()
  local words
  setup(function() words = start_databases() end)
  teardown(function()
    for _, store in ipairs(stores) do store.connection:close() end
    for _, server in ipairs(servers) do server.stop() end
  end)
  before_each(world.open)
  after_each(function()
    world.cli("FLUSHALL")
    world.close()
  end)

  it("write no stale value with a fence, but do without one", function()
    local workers, front = {}, start_nginx()
    for i = 1, AT_ONCE do
      workers[i] = process.lua { file = "spec/fencing/stopped_worker.lua",
        args = { i, ROUNDS, world.server:url(), front.directory, unpack(words) } }
      world.children[#world.children + 1] = workers[i]
    end
    local client = holdfast.new { url = world.server:url(), command_timeout = 60 }
    for round = 1, ROUNDS do
      for i, worker in ipairs(workers) do
        await(worker, function() return is_stopped(worker.pid) end)
        write(client, front, i * 1000 + round)
      end
      for _, worker in ipairs(workers) do worker:kill "CONT" end
      for _, worker in ipairs(workers) do
        await(worker, function() return worker:output():find(("round %d "):format(round), 1, true) end)
      end
    end
    client:close()
    local total = AT_ONCE * ROUNDS
    local with, without = {}, {}
    local function stale_of(pattern)
      local count = 0
      for _, key in ipairs(world.cli("KEYS", pattern)) do
        if world.cli("GET", key) == "stale" then count = count + 1 end
      end
      return count
    end
    with.redis, without.redis = stale_of "price:*", stale_of "bare:*"
    with.nginx, without.nginx = 0, 0
    for _, worker in ipairs(workers) do
      assert.same({ "exit", 0 }, { worker:wait(60) })
      for fenced, bare in worker:output():gmatch " nginx (%d) (%d)" do
        with.nginx, without.nginx = with.nginx + tonumber(fenced), without.nginx + tonumber(bare)
      end
      for name, accepted in worker:output():gmatch " (%l+) (%d) %d" do
        assert.equal("0", accepted, name)
      end
    end
    front:stop()
    for _, store in ipairs(stores) do
      with[store.name], without[store.name] = counted(store, ">"), counted(store, "<")
    end
    for name, count in pairs(with) do
      print(("%s: %d holders, stale writes with the fence %d, without %d"):format(name, total, count,
        without[name]))
      assert.equal(0, count, name)
      assert.equal(total, without[name], name)
    end
  end)
end)
