-- The command over TLS.

local certificates = require "spec.support.certificates"
local command = require "spec.support.command"
local holdfast = require "holdfast"
local jobs = require "spec.support.jobs"
local redis = require "spec.support.redis"

local exits, settings = jobs.exits, jobs.settings

describe("over TLS", function()
  local made, server

  setup(function()
    made = certificates.make()
    server = redis.start {
      tls = { cert = made.server.cert, key = made.server.key, ca = made.ca.cert, clients = "yes" },
    }
  end)
  teardown(function() server:stop() end)
  before_each(jobs.open_alone)
  after_each(jobs.close)

  local function config(...)
    local env = settings(...)
    env.HOLDFAST_URL = false
    return env
  end

  local function run(words, env)
    words.env = env or { HOLDFAST_URL = server:tls_url() }
    return command.run(server, words)
  end

  local function says(code, pattern, words, env)
    local exited, output = run(words, env)
    assert.equal(code, exited, output)
    assert.matches(pattern, output)
  end

  -- The subcommand's words, with the options for the files first.
  local function with_files(name, ...)
    local words = { name, "--ca", made.ca.cert, "--cert=" .. made.client.cert, "--key",
      made.client.key }
    for _, word in ipairs { ... } do words[#words + 1] = word end
    return words
  end

  local function subcommand(...) return run(with_files(...)) end

  it("every subcommand presents the client certificate", function()
    local client = holdfast.new(server:url())
    local lock = assert(client:lock("held"):acquire())
    assert.equal(0, (subcommand "ping"))
    says(0, "\nheld ", with_files "ls")
    says(0, "state +held", with_files("show", "held"))
    assert.equal(0, (subcommand "top"))
    assert.equal(0, (subcommand("bench", "--cycles", "20", "--workers", "2")))
    assert.equal(0, (subcommand("break", "-y", "held")))
    lock:release()
    client:close()
    says(0, "ran", with_files("run", "k", "--", "echo", "ran"))
  end)

  it("the settings file sets how long the handshake may take", function()
    server:kill("STOP")
    finally(function() server:kill("CONT") end)
    local function ping(...)
      return command.start(nil, { "ping", env = config("url = " .. server:tls_url(),
        "ca = " .. made.ca.cert, "cert = " .. made.client.cert, "key = " .. made.client.key,
        "command_timeout = 1m", ...) })
    end
    local patient, usual = ping "connect_timeout = 1m", ping()
    exits(usual, 69)
    assert.is_nil((patient:status()))
    server:kill("CONT")
    exits(patient, 0)
  end)

  it("certificates in the settings file do not affect a server without TLS", function()
    local env = config("ca = " .. made.ca.cert, "cert = " .. made.client.cert,
      "key = " .. made.client.key)
    assert.equal(0, (run({ "ping", "--url", server:url() }, env)))
  end)

  it("a missing certificate, key or rediss:// is reported", function()
    local url, cert, key = "url = " .. server:tls_url(), made.client.cert, made.client.key
    says(69, "client certificate", { "ping", "--ca", made.ca.cert })
    says(64, "%-%-cert and %-%-key must be used together", { "ping", "--cert", cert })
    says(64, "%-%-ca, %-%-cert and %-%-key need rediss://",
      { "ping", "--url", server:url(), "--ca", made.ca.cert })
    says(64, "%-%-cert and %-%-key must be used together", { "ping", "--key", key },
      config(url, "cert = " .. cert, "key = " .. key))
    says(64, "cert and key must be set together in the settings file", { "ping" }, config(url, "cert = x"))
  end)
end)
