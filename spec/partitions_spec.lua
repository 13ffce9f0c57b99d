-- A real partition: one master of a cluster with its clients is in its own network namespace, whose
-- network silently loses packets. Without root, this spec is left out.

local cluster = require "spec.support.cluster"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local sys = require "spec.support.sys"

local NAME = "holdfast" .. sys.getpid()
local LINK, NET = "hf" .. sys.getpid(), "10.231." .. sys.getpid() % 256 -- these specs may run twice at once
local OUTSIDE, INSIDE = NET .. ".1", NET .. ".2"

local function run(command, ...)
  return process.succeeds((command):format(...) .. " >/dev/null 2>&1")
end

local function inside(command, ...) return run("ip netns exec %s " .. command, NAME, ...) end

-- → whether this process may make the network
local function make_network()
  return run("ip netns add %s", NAME)
    and run("ip link add %s type veth peer name hf1 netns %s", LINK, NAME)
    and run("ip addr add %s/30 dev %s", OUTSIDE, LINK) and run("ip link set %s up", LINK)
    and inside("ip addr add %s/30 dev hf1", INSIDE) and inside "ip link set hf1 up"
    and inside "ip link set lo up" and inside "ss -V"
end

local function remove_network()
  run("ip link del %s", LINK)
  run("ip netns del %s", NAME)
end

-- One master is cut off together with the clients beside it. The replicas and the other masters are
-- on the other side. Times are those of spec.support.sys, which all processes share.
describe("a partition that cuts off a cluster master with its clients #check", function()
  local NODE_TIMEOUT, LEASE, PATIENCE = 2, 9, 30 -- seconds
  local DUE_SOON = 7000 -- ms left of the lease one second before its renewal
  local NOBODY = "02:00:00:00:00:01" -- no interface has this address, so packets to it are lost
  -- A master is pinged at least once in half the timeout, and counts as absent when a ping is as
  -- old as the timeout. Nodes look ten times a second; the rest is for a busy machine.
  local STOPS_WITHIN = 1.5 * NODE_TIMEOUT + 1

  -- Holds one lock before the cut, and acquires another one after it, when the file exists. Prints
  -- until when it has believed that it holds each lock.
  local ISOLATED = [[
    local holdfast, sys = require "holdfast", require "spec.support.sys"
    local client = holdfast.new { url = %q, lease = %d, command_timeout = 1 }
    local before, after, believed = client:lock(%q), client:lock(%q), {}
    local function say(...)
      print(...)
      io.stdout:flush()
    end
    local function exists(path)
      local file = io.open(path)
      return file and file:close()
    end
    local function looks_at(lock, name)
      local now = sys.now()
      if not lock:is_held() then return false end
      believed[name] = now
      return true
    end
    assert(before:acquire(20))
    say "ready"
    while not exists(%q) do sys.sleep(0.005) end
    assert(after:acquire(0))
    say "acquired"
    local holds_before, holds_after
    repeat
      holds_before, holds_after = looks_at(before, "before"), looks_at(after, "after")
      sys.sleep(0.01)
    until not holds_before and not holds_after
    say("before", believed.before, before:lost())
    say("after", believed.after, after:lost())
    say("then", (select(3, after:acquire(0))))
    while not after:acquire(20) do sys.sleep(0.1) end
    say "returned"
    client:close()
  ]]

  local nodes, majority, alone -- `majority`: a client on the other side

  -- Two keys of the node that will be cut off.
  local function choose_keys()
    local keys = {}
    for i = 1, 100 do
      if nodes:node_of("k" .. i) == nodes.nodes[1] then keys[#keys + 1] = "k" .. i end
    end
    return keys[1], keys[2]
  end

  local function start_isolated(...)
    alone = process.start {
      "ip", "netns", "exec", NAME, sys.interpreter(), "-e",
      ISOLATED:format(nodes:url { nodes.nodes[1] }, LEASE, ...),
      env = { LUA_PATH = process.lua_path, LUA_CPATH = process.lua_cpath, LUA_INIT = false },
    }
    assert.truthy(alone:wait_output("ready", PATIENCE), alone:output())
  end

  local function begin_cluster()
    local away, here = { host = INSIDE, under = { "ip", "netns", "exec", NAME } }, { host = OUTSIDE }
    nodes = cluster.start {
      masters = 3, places = { away, here, here, here, here, here },
      node_timeout = NODE_TIMEOUT * 1000, conf = { "protected-mode no" },
    }
    majority = holdfast.new { url = nodes:url { nodes.nodes[2], nodes.nodes[3] }, lease = LEASE }
  end

  local function finish_cluster()
    if majority then majority:close() end
    if alone then alone:stop() end
    if nodes then nodes:stop() end
  end

  local function cut()
    assert(run("ip neigh replace %s lladdr %s dev %s nud permanent", INSIDE, NOBODY, LINK))
    assert(inside("ip neigh replace %s lladdr %s dev hf1 nud permanent", OUTSIDE, NOBODY))
    return process.now()
  end

  local function heal()
    assert(run("ip neigh del %s dev %s", INSIDE, LINK))
    assert(inside("ip neigh del %s dev hf1", OUTSIDE))
    nodes:wait_settled()
  end

  -- → the time at which this side acquires it
  local function acquired_here(lock)
    assert.truthy(process.wait_until(function() return (lock:acquire(1)) end, PATIENCE))
    return process.now()
  end

  it("lets holders keep their locks for at most one lease after it loses its majority", function()
    finally(function()
      finish_cluster()
      remove_network()
    end)
    if not make_network() then return pending "root is needed" end
    begin_cluster()
    local key, later = choose_keys()
    local signal = process.directory() .. "/cut"
    local before, after = majority:lock(key), majority:lock(later)
    local replica = nodes:replicas_of(nodes.nodes[1])[1]
    start_isolated(key, later, signal)

    assert.equal("OK", replica:cli "READONLY")
    assert.truthy(process.wait_until(function() return replica:cli("PTTL", key) <= DUE_SOON end))
    local cut_at = cut()
    local known_until = process.now() + replica:cli("PTTL", key) / 1000
    assert(io.open(signal, "w")):close()
    assert.truthy(process.wait_until(function()
      return nodes.nodes[1]:cli("CLUSTER", "INFO"):find("cluster_state:fail", 1, true)
    end, PATIENCE))
    local stopped_at = process.now()
    local after_at, before_at = acquired_here(after), acquired_here(before)
    assert.truthy(alone:wait_output("then\t%S+", PATIENCE), alone:output())
    local believed = {}
    for what, time in alone:output():gmatch "(%l+)\t(%S+)\tunreachable\n" do believed[what] = tonumber(time) end

    assert.is_true(stopped_at < cut_at + STOPS_WITHIN, "it serves for too long")
    assert.is_true(after_at > cut_at + NODE_TIMEOUT / 2, "it is replaced too soon")
    assert.is_true(before_at >= known_until, "the replica forgets a lease that it knows")
    for what, time in pairs(believed) do
      assert.is_true(time < stopped_at + LEASE, what .. " is believed for too long")
    end
    assert.is_true(believed.before > known_until, "it is not renewed after the cut")
    assert.is_true(believed.after > after_at, "there are no two holders")
    heal()
    assert(after:release())
    assert.truthy(alone:wait_output("returned", PATIENCE), alone:output())
    assert(before:release())
  end)
end)
