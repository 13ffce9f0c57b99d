-- The option `credentials`: a function that returns user and password for each login.

local command = require "spec.support.command"
local files = require "spec.support.files"
local holdfast = require "holdfast"
local loops = require "spec.support.loops"
local process = require "spec.support.process"

local options = { tcp = true, password = "one" }
local world = require("spec.support.world").new(options)

local PATIENCE = 30

-- Replaces the server's password, and ends every connection.
local function rotate(password)
  world.cli("ACL", "SETUSER", "default", "resetpass", ">" .. password)
  world.server.options.password = password
  world.cli("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
  world.cli("CLIENT", "KILL", "TYPE", "pubsub")
end

local function address() return ("127.0.0.1:%d"):format(world.server.port) end

local function client(credentials, more)
  local all = { url = "redis://" .. address(), credentials = credentials }
  for name, value in pairs(more or {}) do all[name] = value end
  return world.client(all)
end

before_each(world.open)
after_each(function()
  world.close()
  options.password = "one"
end)

describe("a credentials function", function()
  it("that fails makes calls fail as unreachable, with its reason in the message", function()
    for _, case in ipairs {
      { function() return nil, "the vault is closed" end, "unreachable", "the vault is closed" },
      { function() return nil end, "unreachable", "the function returned nil" },
      { function() error("no route to the vault", 0) end, "unreachable", "raised an error: no route to the vault" },
      { function() return "me" end, "denied", "the password is nil, not a string" },
      { function() return {}, "x" end, "denied", "the user is a table, not a string" },
      { function() return "me", 1234567 end, "denied", "the password is a number, not a string" },
      { function() return "me", ("x"):rep(512) end, "denied", "the password is longer than 511 bytes" },
      { function() return "a\0b", "" end, "denied", "the user contains a NUL byte" },
    } do
      local got, message, code = client(case[1]):lock("k"):acquire(0)
      assert.is_nil(got)
      assert.equal(case[2], code, message)
      assert.is_truthy(message:find(case[3], 1, true), message)
      assert.is_nil(message:find("1234567", 1, true), message)
    end
  end)

  it("may raise an error that contains its earlier credentials, which messages redact", function()
    local fails = false
    local one = client(function()
      if fails then error("cannot renew token one of user default") end
      return "default", "one"
    end, { command_timeout = 0.5 })
    assert(one:ping())
    fails = true
    rotate "two"
    local _, message = one:ping()
    assert.is_truthy(message:find("cannot renew token … of user …", 1, true), message)
  end)

  it("must not use the client that it logs in", function()
    local one, inner
    one = client(function()
      inner = { pcall(one.ping, one) }
      pcall(one.close, one)
      return "", "one"
    end)
    assert(one:ping())
    assert.is_false(inner[1])
    assert.matches("must not use the client that it logs in", inner[2])
    assert(one:ping())
  end)

  it("cannot be combined with a login in the URL", function()
    for _, opts in ipairs {
      { url = "redis://me:x@h", credentials = print },
      { servers = { "redis://h", "redis://:x@i" }, mode = "quorum", credentials = print },
    } do
      assert.error_matches(function() holdfast.new(opts) end,
        "credentials: leave user and password out of the URL")
    end
    assert.error_matches(function() holdfast.new { credentials = "x" } end,
      'credentials must be a function, not "x"')
  end)

  it("is called for each server of a quorum, with its address", function()
    local passwords = {}
    local urls = {}
    for i = 1, 3 do
      local server = world.another { tcp = true, password = "p" .. i }
      urls[i] = ("redis://127.0.0.1:%d"):format(server.port)
      passwords[("127.0.0.1:%d"):format(server.port)] = "p" .. i
    end
    local one = holdfast.new { servers = urls, mode = "quorum",
      credentials = function(server) return "", passwords[server] end }
    assert(assert(one:lock("k"):acquire(5)):release())
    one:close()
  end)

  -- The watchdog, a thread, cannot call Lua: it logs in with the old password, and is refused.
  it("is called again by the next call if the password changed between two calls", function()
    local password = "one"
    local one = client(function() return "", password end, { lease = 3 })
    local lock, other = one:lock("k"), one:lock("other")
    assert(lock:acquire(0)) assert(other:acquire(0))
    rotate "two"
    password = "two"
    local left = lock:remaining()
    assert.is_true(process.wait_until(function()
      assert(other:check())
      local more = lock:remaining() > left
      left = lock:remaining()
      return more
    end, PATIENCE))
    assert(lock:release()) assert(other:release())
  end)

  for _, loop in ipairs(loops) do
    it("does not replace a later call's login if it returns late, as under " .. loop.name, function()
      local fetch = require("holdfast.credentials").make_fetcher(coroutine.yield)
      local early, late = coroutine.wrap(fetch), coroutine.wrap(fetch)
      early("server", false) late("server", false)
      assert.same({ "new", "", "new" }, { (select(2, late("", "new"))), early("", "old") })
    end)

    it("may wait in a coroutine of its own, for holders and waiters, under " .. loop.name, function()
      local password, calls = "one", 0
      loop.run(function()
        local one = client(function()
          calls = calls + 1
          loop.sleep(0.01)
          return "", password
        end, { driver = loop.driver, lease = 2 })
        local lock = assert(one:lock("k"):acquire(5))
        local granted
        loop.spawn(function()
          local other = client(function() return "", password end, { driver = loop.driver })
          local wanted = other:lock("k")
          granted = wanted:acquire(60) == wanted and wanted:release()
          other:close()
        end)
        assert.is_true(loop.wait_until(function()
          return world.cli("ZCARD", "holdfast_queue:{k}") == 1
        end, PATIENCE))
        password = "two"
        rotate "two"
        local renewed = one:stats().renewals
        local function is_renewed() return one:stats().renewals > renewed end
        assert.is_true(loop.wait_until(is_renewed, PATIENCE))
        assert.is_true(calls >= 2)
        assert(lock:release())
        assert.is_true(loop.wait_until(function() return granted end, PATIENCE))
        one:close()
      end)
    end)
  end
end)

describe("a command whose login cannot be fetched while it holds a lock", function()
  local directory

  before_each(function() directory = process.directory() end)
  after_each(function() process.remove(directory) end)

  local function write(name, text) files.write(directory .. "/" .. name, text) end

  -- → how many lines of the command's output contain this text
  local function lines(child, text)
    local count = 0
    for line in child:output():gmatch("[^\n]+") do
      count = count + (line:find(text, 1, true) and 1 or 0)
    end
    return count
  end

  local function tries()
    local count = 0
    for _ in io.lines(directory .. "/tries") do count = count + 1 end
    return count
  end

  -- `install(password)` makes the command find this password, or none if it is nil; `has_tried()`
  -- returns when there was time for a second warning. → the command's output
  local function warns_once(words, install, why, has_tried)
    install "one"
    words.env = { HOLDFAST_CONFIG = directory .. "/holdfast.conf" }
    local child = command.start(nil, words)
    world.children[#world.children + 1] = child
    local function eventually(condition)
      process.eventually(condition, PATIENCE, function() return child:output() end)
    end
    local function says(text) eventually(function() return lines(child, text) > 0 end) end
    eventually(function() return world.cli("EXISTS", "k") == 1 end)
    install(nil)
    rotate "two"
    says(why)
    has_tried()
    install "two"
    says "got a login again; renewing the lock"
    assert.equal(1, lines(child, why), child:output())
    assert.equal(1, lines(child, "got a login again"), child:output())
    child:kill("TERM")
    child:wait(PATIENCE)
    return child:output()
  end

  local function with_a_program(words, has_tried)
    write("holdfast.conf", ("url = redis://%s\nlease = 15\ncredentials_command = echo >>%s/tries; cat %s/password\n")
      :format(address(), directory, directory))
    return warns_once(words, function(password)
      if password then write("password", password) else os.remove(directory .. "/password") end
    end, "the credentials command failed: it exited with code 1; will retry", has_tried)
  end

  it("warns once when the credentials program fails, and reports once that it recovered", function()
    local output = with_a_program({ "run", "k", "--", "sleep", "60" }, function()
      local before = tries()
      assert.is_truthy(process.wait_until(function() return tries() > before end, PATIENCE))
    end)
    assert.matches('^holdfast run: the credentials command failed: [^\n]+ the lock "k" expires in %d+ s\n', output)
  end)

  it("prints a warning event and a resumed event with hold --json", function()
    local output = with_a_program({ "hold", "--json", "k" }, function() end)
    assert.matches('{"event":"warning",[^\n]+"code":"unreachable","key":"k","left":', output)
    assert.matches('{"event":"resumed",[^\n]+"key":"k"}', output)
  end)

  it("warns once when its settings file cannot be read", function()
    local path = directory .. "/holdfast.conf"
    warns_once({ "run", "k", "--", "sleep", "60" }, function(password)
      if not password then return os.remove(path) end
      write("holdfast.conf", ("url = redis://:%s@%s\nlease = 15\n"):format(password, address()))
    end, "cannot read " .. path, function() process.sleep(0.3) end)
  end)
end)

describe("a command whose password is replaced after its job has ended", function()
  local directory

  before_each(function() directory = process.directory() end)
  after_each(function() process.remove(directory) end)

  local function write(name, text) files.write(directory .. "/" .. name, text) end

  local function start(...)
    write("password", "one")
    write("holdfast.conf", ("url = redis://%s\ncommand_timeout = 1\ncredentials_command = cat %s/password\n")
      :format(address(), directory))
    local words = { "run", ... }
    words.env = { HOLDFAST_CONFIG = directory .. "/holdfast.conf" }
    local child = command.start(nil, words)
    world.children[#world.children + 1] = child
    return child
  end

  it("keeps its lock until --min-hold is over", function()
    local child = start("-v", "--lease", "3", "--min-hold", "60", "k", "--", "true")
    assert(child:wait_output("exited with code 0\n", PATIENCE), child:output())
    write("password", "two")
    rotate "two"
    world.wait_renewed("k", 2)
    child:kill("TERM")
    assert.same({ "exit", 0 }, { child:wait(PATIENCE) }, child:output())
  end)

  it("writes the record of --idempotent with the new password", function()
    finally(function() world.cli("DEL", "k", "holdfast_once:k") end)
    local child = start("--idempotent", "1h", "--lease", "15", "k", "-c",
      ("echo runs; while [ ! -e %s/go ]; do sleep 0.02; done"):format(directory))
    assert(child:wait_output("runs\n", PATIENCE), child:output())
    rotate "two"
    write("go", "")
    assert(child:wait_output('cannot release "k"', PATIENCE), child:output())
    write("password", "two")
    assert.same({ "exit", 0 }, { child:wait(PATIENCE) }, child:output())
    assert.equal(1, world.cli("HEXISTS", "holdfast_once:k", "done"))
  end)
end)
