-- `holdfast doctor` on several servers: healthy servers are not blamed, and each fault is reported
-- with its node.

local cluster = require "spec.support.cluster"
local command = require "spec.support.command"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local sentinel = require "spec.support.sentinel"

local LASTING = { "appendonly yes", "tcp-keepalive 60" }
local PATIENCE = 30

-- → the checks that hurt as lines "check: text", the whole output, the exit code
local function visit(...)
  local code, output = command.run(nil, { "doctor", "--json", ... })
  local hurts = {}
  for check, text in output:gmatch('"check":"(%a+)","state":"hurts","text":"(.-)"[,}]') do
    hurts[#hurts + 1] = check .. ": " .. text
  end
  return hurts, output, code
end

describe("holdfast doctor on several servers", function()
  local set
  after_each(function() set:stop() end)

  it("finds no fault in a healthy primary behind Sentinels", function()
    set = sentinel.start { conf = LASTING }
    local hurts, output, code = visit("--kinds", "all", "--try", set:url())
    assert.same({}, hurts)
    assert.equal(0, code)
    assert.matches("primary of 1 replica", output)
  end)

  it("names a missing replica found through Sentinels", function()
    set = sentinel.start { conf = LASTING }
    set:master():cli("CONFIG", "SET", "min-replicas-to-write", "1")
    assert.matches("^replicas: only", visit(set:url())[1])
  end)

  it("finds no fault in a healthy cluster, and checks each node", function()
    set = cluster.start { replicas = 0, conf = LASTING }
    local hurts, output, code = visit("--kinds", "all", "--try", set:url())
    assert.same({}, hurts)
    assert.equal(0, code)
    for _, node in ipairs(set.nodes) do
      local _, count = output:gsub(('"server":"127.0.0.1:%d"'):format(node.port), "")
      assert.is_true(count > 5)
    end
  end)

  it("names a fault of one cluster node, and a node that is down", function()
    set = cluster.start { replicas = 0, conf = LASTING }
    set.nodes[2]:cli("CONFIG", "SET", "timeout", "5")
    assert.same({ "connections: timeout is 5 s: idle clients are closed, and reconnect for each call and renewal" },
      (visit(set:url())))
    set.nodes[3]:kill()
    local found = assert(process.wait_until(function()
      local said = table.concat(visit(set:url()), "\n")
      return said:find("CLUSTERDOWN", 1, true) and said
    end, PATIENCE))
    assert.matches("cannot be reached: [^\n]*" .. set.nodes[3].port, found)
  end)

  it("names a cluster node that announces a wrong address", function()
    set = cluster.start { replicas = 0, conf = LASTING }
    set.nodes[2]:cli("CONFIG", "SET", "cluster-announce-port", "1")
    assert(process.wait_until(function()
      return table.concat(visit(set:url()), "\n"):find "cannot be reached: [^\n]*127%.0%.0%.1:1%D"
    end, PATIENCE))
  end)
end)

-- The servers on this machine, from Redis 6.2 on: { name, program }.
local found = {}
for line in io.popen("tools/servers list"):lines() do
  local family, version, program = line:match("^(%S+) (%S+) (.*)$")
  if family == "valkey" or tonumber(version:match("^%d+%.%d+")) >= 6.2 then
    found[#found + 1] = { name = family .. " " .. version, program = program }
  end
end

describe("holdfast doctor finds no fault", function()
  local started
  before_each(function() started = {} end)
  after_each(function() for _, server in ipairs(started) do server:stop() end end)

  local function start(program, ...)
    local server = redis.start { program = program, persist = true, conf = { "tcp-keepalive 60", ... } }
    started[#started + 1] = server
    return server:url()
  end

  for _, server in ipairs(found) do
    it("in a healthy " .. server.name, function()
      local hurts, _, code = visit("--kinds", "all", "--try", start(server.program))
      assert.same({}, hurts)
      assert.equal(0, code)
    end)
  end

  it("in the healthy servers of a quorum", function()
    local function start_three(...) return start(nil, ...), start(nil, ...), start(nil, ...) end
    local hurts, _, code = visit("--kinds", "lock,mutex", "--try", start_three "appendfsync always")
    assert.same({ {}, 0 }, { hurts, code })
    local a, b, c = start_three()
    hurts, _, code = visit("--restart-guard", "30", "--try", a, b, c)
    assert.same({ {}, 0 }, { hurts, code })
  end)
end)
