local command = require "spec.support.command"
local files = require "spec.support.files"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local sys = require "spec.support.sys"

describe("spec.support.redis", function()
  local server

  before_each(function() server = redis.start() end)
  after_each(function() server:stop() end)

  it("says why a server did not start", function()
    assert.error_matches(function() redis.start { conf = { "no-such-option 1" } } end, "no%-such%-option")
  end)
end)

describe("spec.support.process", function()
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
    files.write(path, SPEC)
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
    files.write(path .. "/code.lua", CODE:format(process.lua_path, process.lua_cpath))
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
