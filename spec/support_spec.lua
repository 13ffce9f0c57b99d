local command = require "spec.support.command"
local cluster = require "spec.support.cluster"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local resp = require "spec.support.resp"
local sentinel = require "spec.support.sentinel"
local sys = require "spec.support.sys"

describe("spec.support.redis", function()
  local server

  before_each(function() server = redis.start() end)
  after_each(function() server:stop() end)

  it("answers on a private unix socket", function()
    assert.equal("PONG", server:cli("PING"))
    assert.equal("unix://" .. server.path, server:url())
  end)

  it("carries bytes unchanged", function()
    local bytes = {}
    for i = 0, 255 do bytes[#bytes + 1] = string.char(i) end
    local value = table.concat(bytes):rep(300)
    assert.equal("OK", server:cli { "SET", "k\0 {x}", value })
    assert.equal(value, server:cli("GET", "k\0 {x}"))
  end)

  it("returns numbers, lists, nil and errors", function()
    assert.equal(2, server:cli("RPUSH", "list", "a", "b"))
    assert.same({ "a", "b" }, server:cli("LRANGE", "list", 0, -1))
    assert.is_false(server:cli("GET", "none"))
    assert.same({ 1, { "x", false } }, server:cli("EVAL", "return {1, {'x', false}}", 0))
    assert.matches("^WRONGTYPE", server:cli("GET", "list").err)
  end)

  it("restarts on the same address, empty or with its data", function()
    local path = server.path
    server:cli("SET", "k", "v")
    server:restart(true)
    assert.equal("v", server:cli("GET", "k"))
    server:restart()
    assert.equal(path, server.path)
    assert.is_false(server:cli("GET", "k"))
  end)

  it("stops when killed, and can be restarted", function()
    server:kill()
    assert.has_error(function() server:cli("PING") end)
    server:restart()
    assert.equal("PONG", server:cli("PING"))
  end)

  it("hangs on STOP, and resumes on CONT", function()
    local connection = resp.connect { path = server.path }
    server:kill("STOP")
    connection:send("PING")
    assert.is_nil(connection:poll(0.05))
    server:kill("CONT")
    assert.equal("PONG", connection:receive())
    connection:close()
  end)

  it("records every command that clients sent", function()
    local monitor = server:monitor()
    local odd = 'a "quoted" \\x41 \n\1\255'
    server:cli("SET", "k", odd)
    server:cli("EVAL", "return redis.call('GET', KEYS[1])", 1, "k")
    local commands = monitor:commands()
    assert.same({ "SET", "k", odd }, commands[1].args)
    assert.is_true(commands[3].script)
    assert.equal(1, monitor:count("eval"))
    assert.equal(0, monitor:count("get"))
    monitor:close()
  end)

  it("lists the keys, channels and clients that a test left", function()
    local subscriber = resp.connect { path = server.path }
    subscriber:call("SUBSCRIBE", "channel")
    server:cli("SET", "b", 1)
    server:cli("SET", "a", 1)
    assert.same({ keys = { "a", "b" }, channels = { "channel" }, clients = 1 }, server:leaks())
    subscriber:close()
    assert.is_truthy(process.wait_until(function() return server:leaks("none*").clients == 0 end))
    assert.same({}, server:leaks("none*").keys)
  end)
end)

describe("a redis-server with options", function()
  local servers = {}

  local function start(options)
    servers[#servers + 1] = redis.start(options)
    return servers[#servers]
  end

  after_each(function()
    for _, server in ipairs(servers) do server:stop() end
    servers = {}
  end)

  it("listens on loopback", function()
    local server = start { tcp = true }
    local connection = resp.connect { port = server.port }
    assert.equal("PONG", connection:call("PING"))
    assert.equal("redis://127.0.0.1:" .. server.port, server:tcp_url())
    connection:close()
  end)

  it("requires a password, and has users", function()
    local server = start { tcp = true, password = "secret", users = { "reader on >pass ~* +get" } }
    assert.equal("PONG", server:cli("PING"))
    assert.matches(":secret@", server:url(), 1, true)
    local open = resp.connect { path = server.path }
    assert.matches("^NOAUTH", open:call("GET", "k").err)
    open:close()
    local reader = resp.connect { path = server.path, user = "reader", password = "pass" }
    assert.is_false(reader:call("GET", "k"))
    assert.matches("^NOPERM", reader:call("SET", "k", "v").err)
    reader:close()
  end)

  it("keeps its data through kill -9 with persist", function()
    local server = start { persist = true }
    server:cli("SET", "k", "v")
    server:kill()
    server:restart(true)
    assert.equal("v", server:cli("GET", "k"))
  end)

  it("replicates to a replica", function()
    local master = start { tcp = true }
    local replica = start { replica_of = master }
    master:cli("SET", "k", "v")
    assert.is_truthy(process.wait_until(function() return replica:cli("GET", "k") == "v" end))
    assert.matches("^READONLY", replica:cli("SET", "k", "w").err)
  end)

  it("accepts maxmemory and further configuration lines", function()
    local server = start { maxmemory = "100kb",
      conf = { "maxmemory-policy noeviction", "timeout 7" } }
    assert.same({ "timeout", "7" }, server:cli("CONFIG", "GET", "timeout"))
    assert.matches("^OOM", server:cli("SET", "k", "v").err)
  end)

  it("says why it did not start", function()
    assert.error_matches(function()
      redis.start { conf = { "no-such-option 1" } }
    end, "no%-such%-option")
  end)
end)

describe("several redis-servers", function()
  local servers

  after_each(function()
    for _, server in ipairs(servers) do server:stop() end
  end)

  it("are independent, and fail one by one", function()
    servers = redis.several(3, { tcp = true, password = "secret" })
    for i, server in ipairs(servers) do server:cli("SET", "k", i) end
    servers[2]:kill()
    assert.same({ true, false, true }, { servers[1]:is_running(), servers[2]:is_running(),
      servers[3]:is_running() })
    assert.is_nil(servers[2]:try_cli("GET", "k"))
    servers[2]:restart()
    assert.same({ "1", false, "3" }, { servers[1]:cli("GET", "k"), servers[2]:cli("GET", "k"),
      servers[3]:cli("GET", "k") })
  end)

  it("are queried over a new connection after the old one was killed", function()
    servers = redis.several(1)
    local other = resp.connect { path = servers[1].path }
    assert.equal("PONG", servers[1]:cli("PING"))
    other:call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    assert.is_truthy(process.wait_until(function() return servers[1]:try_cli("PING") == "PONG" end))
    other:close()
  end)
end)

describe("spec.support.sentinel", function()
  local set

  after_each(function() set:stop() end)

  it("starts a master, replicas and Sentinels, each with its password", function()
    set = sentinel.start { replicas = 2, password = "data", sentinel_password = "watch" }
    assert.equal(set.nodes[1], set:master())
    assert.same({ set.nodes[2], set.nodes[3] }, set:replicas())
    local ports = {}
    for i, server in ipairs(set.sentinels) do ports[i] = "127%.0%.0%.1:" .. server.port end
    assert.matches("^redis%+sentinel://:data@" .. table.concat(ports, ",") .. "/holdfast/3$",
      set:url(3))
    local open = resp.connect { port = set.sentinels[1].port }
    assert.matches("^NOAUTH", open:call("SENTINEL", "MASTERS").err)
    open:close()
    set.nodes[1]:cli("SET", "k", "v")
    assert.equal(2, set.nodes[1]:cli("WAIT", 2, 10000))
  end)

  it("fails over when the master is killed, and takes it back as a replica", function()
    set = sentinel.start { password = "data" }
    local old = set:master()
    old:cli("SET", "k", "v")
    assert.equal(1, old:cli("WAIT", 1, 10000))
    old:kill()
    local new = set:wait_failover(old)
    assert.not_equal(old, new)
    assert.equal("v", new:cli("GET", "k"))
    assert.equal("OK", new:cli("SET", "k", "w"))
    old:restart()
    set:wait_ready()
    assert.equal("slave", old:cli("ROLE")[1])
    assert.equal("w", old:cli("GET", "k"))
  end)

  it("fails over from a master that hangs, which becomes a replica later", function()
    set = sentinel.start()
    local old = set:master()
    set:hang(old)
    local new = set:wait_failover(old)
    set:resume(old)
    set:wait_ready()
    assert.equal(new, set:master())
    assert.matches("^READONLY", old:cli("SET", "k", "v").err)
  end)

  it("fails over on request", function()
    set = sentinel.start()
    local old = set:master()
    local new = set:fail_over()
    assert.not_equal(old, new)
    set:wait_ready()
    assert.same({ old }, set:replicas())
  end)
end)

describe("spec.support.cluster", function()
  local nodes

  after_each(function() nodes:stop() end)

  local function other_than(node)
    for _, each in ipairs(nodes:masters()) do
      if each ~= node then return each end
    end
  end

  it("moves a slot in steps, with its keys", function()
    nodes = cluster.start { replicas = 0, password = "secret" }
    assert.equal(3, #nodes:masters())
    local from, slot = nodes:node_of("{tag}1"), nodes:slot("tag")
    local to = other_than(from)
    for i = 1, 3 do from:cli("SET", "{tag}" .. i, i) end
    assert.matches("^MOVED " .. slot, to:cli("GET", "{tag}1").err)

    local move = nodes:begin_move(slot, to)
    assert.equal(1, move:carry(1))
    assert.matches("^ASK " .. slot, from:cli("GET", "{tag}4").err)
    assert.matches("^TRYAGAIN", from:cli("MGET", "{tag}1", "{tag}2", "{tag}3").err)
    assert.equal(2, move:carry())
    assert.equal(0, move:carry())
    assert.equal("OK", to:cli("ASKING"))
    assert.same({ "1", "2", "3" }, to:cli("MGET", "{tag}1", "{tag}2", "{tag}3"))
    move:finish()
    assert.equal(to, nodes:owner(slot, to))
    assert.matches("^MOVED " .. slot, from:cli("GET", "{tag}1").err)
    assert.equal("1", to:cli("GET", "{tag}1"))

    nodes:move(slot, from)
    for _, node in ipairs(nodes.nodes) do assert.equal(from, nodes:owner(slot, node)) end
    assert.equal("3", from:cli("GET", "{tag}3"))
  end)

  it("promotes a replica when a master is killed, and takes it back as a replica", function()
    nodes = cluster.start()
    assert.same({ 6, 3 }, { #nodes.nodes, #nodes:masters() })
    assert.matches("^redis%+cluster://127%.0%.0%.1:" .. nodes.nodes[1].port .. ",", nodes:url())
    local slot, old = nodes:slot("k"), nodes:node_of("k")
    local replica = nodes:replicas_of(old)[1]
    old:cli("SET", "k", "v")
    assert.equal(1, old:cli("WAIT", 1, 10000))
    old:kill()
    assert.equal(replica, nodes:wait_promotion(slot, old))
    assert.equal("v", replica:cli("GET", "k"))
    old:restart(true)
    assert.is_truthy(process.wait_until(function()
      return nodes:replicas_of(replica)[1] == old
    end, 60))
    nodes:wait_ok()
  end)
end)

describe("spec.support.process", function()
  it("runs a program under the same interpreter with the project's modules", function()
    local child = process.lua {
      code = "io.write(_VERSION, tostring(jit ~= nil), arg[1], os.getenv('X')) require 'spec.support.sys'",
      args = { "one" }, env = { X = "two" },
    }
    assert.same({ "exit", 0 }, { child:wait(20) })
    assert.equal(_VERSION .. tostring(rawget(_G, "jit") ~= nil) .. "onetwo", child:output())
  end)

  it("returns a program's output and exit code", function()
    local child = process.lua { code = "error('told you')" }
    assert.same({ "exit", 1 }, { child:wait(20) })
    assert.matches("told you", child:output())
  end)

  it("waits for a limited time, and returns the signal that ended the program", function()
    local child = process.lua { code = "require('spec.support.sys').sleep(60)" }
    local before = process.now()
    assert.same({ nil, "timeout" }, { child:wait(0.05) })
    assert.is_true(process.now() - before < 5)
    child:kill("TERM")
    assert.same({ "signal", 15 }, { child:wait(20) })
    assert.is_nil(child:kill())
  end)

  it("kills a program's children when the program is killed", function()
    local child = process.lua {
      code = [[
        local process = require "spec.support.process"
        local grandchild = process.lua { code = "require('spec.support.sys').sleep(60)", output = "/dev/null" }
        print("pid " .. grandchild.pid) io.stdout:flush()
        process.sleep(60)
      ]],
    }
    local pid = tonumber(child:wait_output("pid (%d+)", 5))
    child:stop()
    assert.is_truthy(process.wait_until(function()
      local status = io.open("/proc/" .. pid .. "/stat")
      local state = status and status:read("*a"):match("%) (%a)")
      if status then status:close() end
      return state == nil or state == "Z"
    end))
  end)

  it("stops the servers and removes the files of a program that failed", function()
    local child = process.lua {
      code = [[
        local server = require("spec.support.redis").start()
        print("at " .. server.directory) io.stdout:flush()
        error("fails")
      ]],
    }
    assert.same({ "exit", 1 }, { child:wait(20) })
    local directory = child:output():match("at (%S+)")
    assert.is_nil(io.open(directory .. "/redis.conf"))
    assert.is_nil((sys.connect_unix(directory .. "/redis.sock")))
  end)

  it("runs Lua states in threads", function()
    local results = sys.run_threads { "return 'a'", "return require('spec.support.sys').getpid()" }
    assert.same({ "a", tostring(sys.getpid()) }, results)
    assert.error_matches(function()
      sys.run_threads { "return 1", "error('in a thread')" }
    end, "in a thread")
  end)

  it("counts caught signals", function()
    assert(sys.catch(10))
    local before = sys.caught()
    sys.kill(sys.getpid(), 10)
    assert.is_truthy(process.wait_until(function() return sys.caught() == before + 1 end))
  end)

  it("measures processor time and memory", function()
    local user, system = sys.cpu()
    assert.is_true(user >= 0 and system >= 0)
    assert.is_true((sys.allocated() or 0) >= 0)
  end)
end)

describe("a test that leaves something behind", function()
  local SPEC = [[
    local holdfast = require "holdfast"
    local leaks = require "spec.support.leaks"
    local process = require "spec.support.process"
    local redis = require "spec.support.redis"
    local resp = require "spec.support.resp"
    leaks.patience = 0.1
    local server, kept
    setup(function() server = redis.start() end)
    teardown(function() server:stop() end)
    it("nothing", function()
      local lock = holdfast.new(server:url()):lock("k")
      assert(lock:acquire())
      assert(lock:release())
      server:cli("SET", "other", 1)
    end)
    it("an open client", function()
      kept = holdfast.new(server:url())
      assert(kept:ping())
      leaks.excuse("its descriptors")
    end)
    it("a closed client", function() kept:close() leaks.excuse("its descriptors") end)
    it("a descriptor", function() kept = io.open("/dev/null") end)
    it("a queue", function() kept:close() server:cli("ZADD", "holdfast_queue:{k}", 1, "a") leaks.excuse("closed a file") end)
    it("a queue, still", function() end)
    it("a connection", function() server:cli("FLUSHALL") kept = resp.connect { path = server.path } end)
    it("a channel", function() kept:call("SUBSCRIBE", "c") end)
    it("a channel of a server that is stopped", function()
      local other = redis.start()
      local connection = resp.connect { path = other.path }
      connection:call("SUBSCRIBE", "d")
      other:stop()
      connection:close()
    end)
  ]]

  it("fails, and the output names what was left", function()
    local directory = process.directory()
    local path = directory .. "/some_spec.lua"
    local file = assert(io.open(path, "w"))
    file:write(SPEC)
    file:close()
    local child = process.start {
      "sh", "-c", 'exec "$0" "$(command -v busted)" --output=plainTerminal "$1"',
      assert(sys.interpreter()), path,
      env = { HOLDFAST_BUILD = process.build },
    }
    assert(child:wait(30))
    local output = child:output()
    assert.matches("9 successes / 0 failures / 5 errors", output, 1, true)
    assert.matches("a descriptor: %d+ descriptors were open before the test, %d+ after", output)
    assert.matches('a queue, still: left on the server: queues "holdfast_queue:{k}", channels "", 0 conn', output, 1, true)
    assert.matches('a connection: left on the server: queues "", channels "", 1 connections',
      output, 1, true)
    assert.matches('a channel: left on the server: queues "", channels "c", 1 connections', output,
      1, true)
    assert.matches('is stopped: left on the server: queues "", channels "d", 1 connections', output,
      1, true)
  end)
end)

describe("spec.support.stage", function()
  local CODE = [[package.path = %q; package.cpath = %q; local stage = require "spec.support.stage"
    stage.say("1. a sale") stage.bar(150, 100) stage.bar(300, 100, true) stage.verdict(true, "sold", true)
    stage.verdict(true, "in time") stage.verdict(false, "late") os.exit(stage.failures)]]
  local SAID = "1. a sale\n   sold\n   in time\n   late\n"

  -- → its output on a terminal, or to a pipe
  local function said(on_terminal, variables)
    local path = process.directory()
    local file = assert(io.open(path .. "/code.lua", "w"))
    file:write(CODE:format(process.lua_path, process.lua_cpath))
    file:close()
    local words = ("'%s' %s/code.lua"):format(sys.interpreter(), path)
    local script = on_terminal and ('script -qec "%s" /dev/null </dev/null'):format(words) or words
    local child = command.other { "sh", "-c", "NO_COLOR= TERM=xterm " .. variables .. " " .. script }
    assert.same({ "exit", 1 }, { child:wait(30) }, child:output())
    process.remove(path)
    return (child:output():gsub("\r\n", "\n"))
  end

  it("prints plain words in a pipe", function()
    assert.equal(SAID, said(false, ""))
    assert.equal(SAID, said(true, "TERM=dumb"))
  end)

  it("prints the same words on a terminal, with marks, a bar, and colours unless NO_COLOR is set", function()
    local plain = said(true, "NO_COLOR=1")
    assert.is_nil(plain:find("\27%[%d+m"))
    assert.matches("\r   " .. ("█"):rep(40) .. " 300 of 100\27%[K\n   ✗ sold\n   ✓ in time\n   ✗ late\n$", plain)
    assert.equal(SAID, (plain:gsub("\r[^\n]*\n", ""):gsub("[✗✓]+ ", "")))
    local painted = said(true, "")
    assert.matches("\27%[31m✗ sold\27%[0m\n   \27%[32m✓ in time\27%[0m", painted)
    assert.equal(plain, (painted:gsub("\27%[%d+m", "")))
  end)
end)
