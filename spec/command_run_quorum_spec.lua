-- holdfast run over several servers.

local jobs = require "spec.support.jobs"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local sys = require "spec.support.sys"

local client, eventually, exists, exits = jobs.client, jobs.eventually, jobs.exists, jobs.exits
local file, gives, nested_in, run = jobs.file, jobs.gives, jobs.nested_in, jobs.run
local says, sees, start, stop, write = jobs.says, jobs.sees, jobs.start, jobs.stop, jobs.write
describe("holdfast run over several servers", function()
  local servers, urls

  before_each(function()
    jobs.open_alone()
    servers, urls = redis.several(3)
  end)
  after_each(function()
    jobs.close()
    for _, server in ipairs(servers) do server:stop() end
  end)

  -- "unix:///a/1,unix:///a/2": the words of --servers
  local function list() return table.concat(urls, ",") end

  -- → the words of a subcommand with these servers
  local function over(subcommand, ...) return { subcommand, "--servers", list(), ... } end

  local function standing(key) return redis.holding(servers, key) end

  it("holds the lock on a majority, and a nested run re-enters it", function()
    says(0, "^%d+|\n$", nested_in(over("run", "k"), "run", "-n", "k", "-c",
      'echo "$HOLDFAST_TOKEN|$HOLDFAST_URL"'))
    eventually(function() return standing("k") == 0 end)
  end)

  it("lets a Lua job create the same client from the environment", function()
    says(0, "^%x+%-.*:%d+\n$", over("run", "k", "-c", sys.interpreter()
      .. [[ -e 'print(require("holdfast").new():lock("k"):info().owner)']]))
  end)

  it("does not re-enter a lock whose hold has ended", function()
    local output = says(0, "", over("run", "k", "-c", 'echo "$HOLDFAST_OWNER $HOLDFAST_TOKEN"'))
    local owner, token = output:match("^(%S+) (%S+)\n$")
    local env = { HOLDFAST_KEY = "k", HOLDFAST_OWNER = owner, HOLDFAST_TOKEN = token,
      HOLDFAST_SERVERS = list() }
    local first = start { "run", "k", "-c", "echo in; exec sleep 60", env = env }
    sees(first, "in\n")
    assert.equal(1, (run { "run", "-n", "k", "--", "true", env = env }))
    stop(first, 143)
  end)

  it("runs while one of three servers is down, and exits with 76 while two are down", function()
    servers[1]:kill()
    local words = over("run", "k", "--", "touch", file "ran")
    assert.equal(0, (run(words)))
    assert.is_true(exists(file "ran"))
    os.remove(file "ran")
    servers[2]:kill()
    local output = says(76, '^holdfast run: cannot acquire "k"[^\n]*[01] of 3 granted[^\n]*\n$', words)
    assert.matches(servers[2].path, output, 1, true)
    assert.is_false(exists(file "ran"))
  end)

  it("says which lock it is waiting for, not which locks it already holds", function()
    local child = start(over("hold", "b"))
    sees(child, "^b ")
    local waiter = start(over("run", "-v", "a", "b", "--", "true"))
    sees(waiter, 'waiting for "%a": [^\n]+\n')
    assert.matches('waiting for "b": held by ', waiter:output(), 1, true)
    child:kill("TERM")
    exits(waiter, 0)
    exits(child, 0)
  end)

  it("ends the job before the lease can end if a majority goes down", function()
    local child = start(over("run", "--lease", "6", "k", "-c",
      "trap 'echo told; exit 5' TERM; echo ready; while :; do sleep 0.05; done"))
    sees(child, "ready\n")
    servers[1]:kill()
    process.sleep(6.5)
    assert.is_nil((child:status()), "one dead server of three ended the job")
    servers[3]:kill()
    exits(child, 75)
    assert.matches("told\n", child:output(), 1, true)
    assert.matches('lost the lock "k": it could not be renewed', child:output(), 1, true)
  end)

  it("reads servers and restart guard from the environment and the settings file", function()
    gives(0, list() .. "\n", { "run", "-n", "k", "-c", 'echo "$HOLDFAST_SERVERS"',
      env = { HOLDFAST_SERVERS = list() } })
    local env = { HOLDFAST_CONFIG = write(file "holdfast.conf", "servers = ", list(),
      "\nrestart_guard = 3600\n") }
    -- a release may not have reached the other servers yet
    says(76, "restarted recently", { "run", "-n", "k2", "--", "true", env = env })
    assert.equal(0, (run { "run", "-n", "--restart-guard", "0", "k4", "--", "true", env = env }))
    says(76, "restarted recently", over("run", "-n", "--restart-guard", "3600", "k3", "--", "true"))
  end)

  it("show reads, and break deletes, the record of --idempotent on all servers", function()
    local function once() return (run(over("run", "--idempotent", "1h", "k", "--", "true"))) end
    local function shows_done(key) return select(2, run(over("show", key))):find("done", 1, true) ~= nil end
    servers[1]:cli("HSET", "holdfast_once:other", "done", "D")
    servers[1]:cli("PEXPIRE", "holdfast_once:other", 60000)
    assert.is_false(shows_done "other") -- a record on one server of three does not count
    assert.equal(0, once())
    assert.equal(79, once())
    local victim = 3 -- the remaining majority has the record
    for i, server in ipairs(servers) do
      if server:cli("EXISTS", "holdfast_once:k") == 0 then victim = i end
    end
    servers[victim]:kill()
    assert.matches("state    free\ndone     for 3[56]", select(2, run(over("show", "k"))))
    gives(0, "k: may run again\n", over("break", "-y", "k"))
    gives(1, "k: was free\n", over("break", "-y", "k"))
    assert.is_false(shows_done "k")
    assert.equal(0, once())
    servers[victim % 3 + 1]:kill()
    assert.equal(76, (run(over("break", "-y", "k"))))
  end)

  it("rejects duplicate, malformed or empty server lists and unsupported subcommands", function()
    local url = servers[1]:url()
    for _, words in ipairs {
      { "run", "--servers", url .. "," .. url, "k", "--", "true" },
      { "run", "--servers", "redis://a,b", "k", "--", "true" },
      { "run", "--servers", ",", "k", "--", "true" },
      { "run", "--servers", url .. ",", "k", "--", "true" },
      { "run", "--url", url, "--restart-guard", "3", "k", "--", "true" }, over "bench",
    } do says(64, "^[^\n]*\n$", words) end
  end)

  it("accepts a --restart-guard from 0 s to 1e9 s", function()
    for guard, code in pairs { ["0"] = 0, ["2h"] = 76, ["1e9"] = 76, ["2e9"] = 64 } do
      says(code, code == 64 and '%-%-restart%-guard must be a duration from 0 s to 1e9 s.*, not "2e9"' or "",
        over("run", "-n", "--restart-guard", guard, "key" .. guard, "--", "true"))
    end
  end)

  it("publishes its name to each server under its tenant's prefix", function()
    local child = start(over("hold", "--tenant", "t:", "k"))
    sees(child, "^k ")
    for _, server in ipairs(servers) do
      eventually(function()
        return (server:cli("KEYS", "holdfast_client:*")[1] or ""):find("^holdfast_client:t:")
      end)
    end
    stop(child, 0)
  end)

  it("is rejected by subcommands that work only with a single server", function()
    assert.equal(64, (run(over "bench")))
    local env = { HOLDFAST_SERVERS = list() }
    gives(64, "holdfast bench: this subcommand works only with a single server; specify it with --url\n",
      { "bench", env = env })
    assert.equal(0, (run { "ls", "--url", servers[1]:url(), env = env }))
  end)

  it("show, ping and break query all servers", function()
    local holder = client { servers = urls, mode = "quorum" }
    local lock, mutex = assert(holder:lock("k"):acquire()), assert(holder:mutex("m"):acquire())
    eventually(function() return standing("k") == 3 and standing("m") == 3 end)
    local output = says(0, "state    held\n", over("show", "k"))
    assert.matches("owner    " .. lock:owner(), output, 1, true)
    says(0, "state    held, a mutex\n", over("show", "m"))
    assert.is_true(mutex:is_held())
    assert.equal(1, (run(over("show", "other"))))
    says(0, "^answered in ", over "ping")
    gives(0, "k: broken\n", over("break", "--yes", "k"))
    assert.equal(0, standing("k"))
    servers[2]:kill() servers[3]:kill()
    assert.equal(76, (run(over "ping")))
    assert.equal(76, (run(over("show", "k"))))
  end)
end)
