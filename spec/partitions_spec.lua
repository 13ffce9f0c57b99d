-- Real partitions: the server is in a network namespace of its own, whose network loses packets
-- without a word. That needs root, and is left out without it.

local holdfast = require "holdfast"
local process = require "spec.support.process"
local sys = require "spec.support.sys"

local NAME = "holdfast" .. sys.getpid()
local LINK, NET = "hf" .. sys.getpid(), "10.231." .. sys.getpid() % 256 -- two may run at once
local OUTSIDE, INSIDE, PORT = NET .. ".1", NET .. ".2", 6399
local QUIET = 1.2 -- seconds after which a connection is doubtful

local function run(command, ...)
  return process.succeeds((command):format(...) .. " >/dev/null 2>&1")
end

local function inside(command, ...)
  return run("ip netns exec %s " .. command, NAME, ...)
end

local server, client

-- → whether this process may do that
local function make_network()
  return run("ip netns add %s", NAME)
    and run("ip link add %s type veth peer name hf1 netns %s", LINK, NAME)
    and run("ip addr add %s/30 dev %s", OUTSIDE, LINK) and run("ip link set %s up", LINK)
    and inside("ip addr add %s/30 dev hf1", INSIDE) and inside "ip link set hf1 up"
    and inside "ss -V"
end

local function remove_network()
  run("ip link del %s", LINK)
  run("ip netns del %s", NAME)
end

local function begin()
  server = process.start {
    "ip", "netns", "exec", NAME, "redis-server", "--bind", INSIDE, "--port", tostring(PORT),
    "--protected-mode", "no", "--save", "", env = { LD_PRELOAD = false },
  }
  client = holdfast.new { url = ("redis://%s:%d"):format(INSIDE, PORT) }
  assert.truthy(process.wait_until(function() return client:ping() end))
end

local function finish()
  client:close()
  server:stop()
end

-- What the server sends over the connections that are there now is lost.
local function forget()
  local list = assert(io.popen(("ip netns exec %s ss -Htn state established"):format(NAME)))
  local text = list:read "*a"
  list:close()
  for port in text:gmatch(OUTSIDE:gsub("%.", "%%.") .. ":(%d+)") do
    assert(inside("ip rule add ipproto tcp dport %s blackhole", port))
  end
end

describe("a real partition #check", function()
  local possible

  setup(function() possible = make_network() end)
  teardown(remove_network)

  local function test(name, check)
    it(name, function()
      if not possible then return pending "root is needed" end
      begin()
      local fine, message = pcall(check, client:lock "k")
      finish()
      if not fine then error(message, 0) end
    end)
  end

  test("that forgets a quiet connection costs an acquire and a release nothing", function(lock)
    process.sleep(QUIET)
    forget()
    assert(lock:acquire(20))
    process.sleep(QUIET)
    forget()
    assert.is_true(lock:release())
  end)

  test("that forgets a connection in use costs an acquire nothing", function(lock)
    assert(lock:acquire(0))
    assert(lock:release())
    forget()
    assert(lock:acquire(20))
    assert.is_true(lock:release())
  end)

  test("that forgets all connections of a waiter costs it neither its wait nor the lock", function(lock)
    local holder = holdfast.new { url = ("redis://%s:%d"):format(INSIDE, PORT) }
    local held = assert(holder:lock "k":acquire(0))
    local waiter = process.lua {
      code = [[
        local client = require("holdfast").new { url = arg[1] }
        print(client:lock "k":acquire(20))
        client:close()
      ]], args = { ("redis://%s:%d"):format(INSIDE, PORT) },
    }
    assert.truthy(process.wait_until(function() return held:info().waiters == 1 end), "it does not wait")
    forget()
    assert(held:release())
    assert.truthy(waiter:wait_output("k %(held", 15), waiter:output())
    waiter:wait(10)
    holder:close()
    assert.is_false(lock:is_locked())
  end)

  test("of a second costs a call that has the time nothing", function(lock)
    process.sleep(QUIET)
    assert(inside "ip link set hf1 down")
    local healer = process.start {
      "sh", "-c", ("sleep 1; ip netns exec %s ip link set hf1 up"):format(NAME),
    }
    assert(lock:acquire(0))
    assert.is_true(lock:release())
    healer:wait(10)
  end)
end)
