-- What a program has read once is replaced while it runs: certificates, passwords, users, files of
-- settings. Holders, waiters and standbys go on.

local certificates = require "spec.support.certificates"
local command = require "spec.support.command"
local process = require "spec.support.process"

local options = { tcp = true }
local world = require("spec.support.world").new(options)

local PATIENCE = 30

local function eventually(condition, ...)
  return assert.is_truthy(process.wait_until(condition, PATIENCE), ...)
end

local function copy(from, to)
  local source, target = assert(io.open(from, "rb")), assert(io.open(to, "wb"))
  target:write(source:read("*a"))
  source:close()
  target:close()
end

local function write(path, text)
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
end

-- Every connection but this one has to be made again.
local function cut()
  world.cli("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
  world.cli("CLIENT", "KILL", "TYPE", "pubsub")
end

local directory

-- A program that takes the lock "k" when it is free, says so and gives it back.
local function waiter(setup)
  return world.program {
    code = setup .. [[
      local lock = client:lock("k", { lease = 3 })
      local got, message = lock:acquire(60)
      print(got and "acquired" or message, got and lock:release())
      client:close()
    ]],
    args = { world.server:url(), directory },
  }
end

-- A program that waits on a channel of Redisson's, not in a queue.
local function listener(setup)
  return world.program {
    code = setup .. [[
      print(client:latch("l"):wait(60))
      client:close()
    ]],
    args = { world.server:url(), directory },
  }
end

local function ends_with(child, text)
  assert.same({ "exit", 0 }, { child:wait(PATIENCE) }, child:output())
  assert.is_truthy(child:output():find(text, 1, true), child:output())
end

local function have_begun_to_wait()
  eventually(function()
    return world.cli("ZCARD", "holdfast_queue:{k}") == 1
      and world.cli("PUBSUB", "NUMSUB", "redisson_countdownlatch__channel__{l}")[2] == 1
  end)
end

describe("when the certificates are replaced in place", function()
  local one, two

  setup(function()
    one, two = certificates.make(), certificates.make()
    options.tls = { cert = one.server.cert, key = one.server.key, ca = one.ca.cert, clients = "yes" }
  end)
  teardown(function() options.tls = nil end)
  before_each(function()
    world.open()
    directory = process.directory() .. "/"
  end)
  after_each(function()
    world.close()
    process.remove(directory)
  end)

  local function install(made)
    copy(made.ca.cert, directory .. "ca.pem")
    copy(made.client.cert, directory .. "cert.pem")
    copy(made.client.key, directory .. "key.pem")
    world.cli("CONFIG", "SET", "tls-cert-file", made.server.cert, "tls-key-file", made.server.key,
      "tls-ca-cert-file", made.ca.cert)
  end

  local function tls()
    return { ca_file = directory .. "ca.pem", cert = directory .. "cert.pem",
      key = directory .. "key.pem" }
  end

  local OVER_TLS = [[
    local directory = arg[2]
    local client = require("holdfast").new { url = arg[3], tls = { ca_file = directory .. "ca.pem",
      cert = directory .. "cert.pem", key = directory .. "key.pem" } }
  ]]

  it("a holder renews, a waiter acquires and a listener hears its channel over new connections", function()
    install(one)
    local setup = OVER_TLS:gsub("arg%[3%]", ("%q"):format(world.server:tls_url()))
    local holder = world.client { url = world.server:tls_url(), tls = tls(), lease = 3 }
    local lock, latch = holder:lock("k"), holder:latch("l")
    assert(lock:acquire(0))
    assert(latch:set(1))
    local waits, listens = waiter(setup), listener(setup)
    have_begun_to_wait()
    install(two)
    cut()
    world.wait_renewed("k", 1)
    eventually(function() return world.cli("PUBSUB", "NUMSUB", "redisson_countdownlatch__channel__{l}")[2] == 1 end)
    assert(lock:release())
    assert(latch:count_down())
    ends_with(waits, "acquired\ttrue")
    ends_with(listens, "true")
  end)

  it("a standby of lead takes over from a leader that dies", function()
    install(one)
    local config = directory .. "holdfast.conf"
    write(config, ("url = %s\nca = %sca.pem\ncert = %scert.pem\nkey = %skey.pem\nlease = 3\ngrace = 0.5\n")
      :format(world.server:tls_url(), directory, directory, directory))
    local function lead()
      local child = command.start(nil, {
        "lead", "--pause", "0.2s", "--no-crash-release", "k", "--", "sleep", "60",
        env = { HOLDFAST_CONFIG = config },
      })
      world.children[#world.children + 1] = child
      return child
    end
    local leader = lead()
    eventually(function() return world.cli("EXISTS", "k") == 1 end, leader:output())
    lead()
    eventually(function() return world.cli("ZCARD", "holdfast_queue:{k}") == 1 end)
    local first = next(world.hash("k"))
    install(two)
    cut()
    world.wait_renewed("k", 1)
    leader:kill("KILL")
    eventually(function()
      local owner = next(world.hash("k"))
      return owner and owner ~= first
    end)
  end)
end)
