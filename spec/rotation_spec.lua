-- Replaces what a program has read at its start: certificates, passwords, users, settings files.
-- Holders, waiters and standbys continue.

local certificates = require "spec.support.certificates"
local command = require "spec.support.command"
local files = require "spec.support.files"
local nginx = require "spec.support.nginx"
local process = require "spec.support.process"

local options = { tcp = true }
local world = require("spec.support.world").new(options)

local PATIENCE = 30

-- Fails with what the programs have printed.
local function eventually(condition, message)
  process.eventually(condition, PATIENCE, function()
    local said = { message or "the condition did not become true" }
    for _, child in ipairs(world.children) do said[#said + 1] = child:output() end
    return table.concat(said, "\n")
  end)
end

local function copy(from, to) files.write(to, files.read(from)) end

local write = files.write

-- Ends every connection but this one.
local function cut()
  world.cli("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
  world.cli("CLIENT", "KILL", "TYPE", "pubsub")
end

local directory

local function open()
  world.open()
  directory = process.directory() .. "/"
end

local function close()
  world.close()
  process.remove(directory)
end

-- Opens a server with a password, which a test replaces.
local function open_with_password()
  options.password = "one"
  open()
end

local function close_with_password()
  close()
  options.password = nil
end

-- Writes the settings of a command. The default command_timeout, a tenth of the lease, is too short
-- for a busy server.
local function settings(lines)
  write(directory .. "holdfast.conf", lines .. "lease = 4.5\ncommand_timeout = 2.5\ngrace = 0.5\n")
end

-- Starts the command with these settings.
local function start(words)
  words.env = { HOLDFAST_CONFIG = directory .. "holdfast.conf" }
  local child = command.start(nil, words)
  world.children[#world.children + 1] = child
  return child
end

local function lead()
  return start { "lead", "--pause", "0.2s", "--no-crash-release", "k", "--", "sleep", "60" }
end

-- Starts a leader and then a standby of the lock "k". → leader, standby, the leader's owner
local function lead_and_stand_by()
  local leader = lead()
  eventually(function() return world.cli("EXISTS", "k") == 1 end, "nobody leads")
  local standby, owner = lead(), next(world.hash("k"))
  eventually(function() return world.cli("ZCARD", "holdfast_queue:{k}") == 1 end, "nobody stands by")
  return leader, standby, owner
end

local function other_than_leads(owner)
  eventually(function()
    local now = next(world.hash("k"))
    return now and now ~= owner
  end, "the standby does not take over")
end

-- A program that acquires the lock "k" when it is free, says so and releases it.
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

-- A program that waits on one of Redisson's channels, not in a queue.
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
  end, "nobody waits for k, or for l")
end

describe("when certificates are replaced in place", function()
  local one, two

  setup(function()
    one, two = certificates.make(), certificates.make()
    options.tls = { cert = one.server.cert, key = one.server.key, ca = one.ca.cert, clients = "yes" }
  end)
  teardown(function() options.tls = nil end)
  before_each(open)
  after_each(close)

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

  it("holders renew, waiters acquire and subscribers receive over new connections", function()
    install(one)
    local setup = OVER_TLS:gsub("arg%[3%]", ("%q"):format(world.server:tls_url()))
    local holder = world.client { url = world.server:tls_url(), tls = tls(), lease = 3 }
    local lock, latch = holder:lock("k"), holder:latch("l")
    assert(lock:acquire(0)) assert(latch:set(1))
    local waits, listens = waiter(setup), listener(setup)
    have_begun_to_wait()
    install(two)
    cut()
    world.wait_renewed("k", 1)
    eventually(function() return world.cli("PUBSUB", "NUMSUB", "redisson_countdownlatch__channel__{l}")[2] == 1 end,
      "nobody waits for l")
    assert(lock:release()) assert(latch:count_down())
    ends_with(waits, "acquired\ttrue")
    ends_with(listens, "true")
  end)

  it("a standby of `holdfast lead` takes over from a leader that dies", function()
    install(one)
    settings(("url = %s\nca = %sca.pem\ncert = %scert.pem\nkey = %skey.pem\n")
      :format(world.server:tls_url(), directory, directory, directory))
    local leader, _, owner = lead_and_stand_by()
    install(two)
    cut()
    world.wait_renewed("k", 1)
    leader:kill("KILL")
    other_than_leads(owner)
  end)
end)

describe("when the password is replaced", function()
  before_each(open_with_password)
  after_each(close_with_password)

  -- As in practice: the new password is added, the programs get it, the old one is removed.
  local function rotate(install, to, from)
    world.cli("ACL", "SETUSER", "default", ">" .. to)
    install(to)
    world.server.options.password = to
    world.cli("ACL", "SETUSER", "default", "<" .. from)
    cut()
  end

  -- Each command continues when `install` has given it another password.
  local function survive(install)
    local leader, standby, owner = lead_and_stand_by()
    local runner = start { "run", "-w", "60", "r", "--", "sleep", "60" }
    local holder = start { "hold", "-w", "60", "h" }
    eventually(function() return world.cli("EXISTS", "r", "h") == 2 end, "nobody holds r and h")
    local waits = start { "run", "-w", "60", "r", "--", "echo", "it ran" }
    eventually(function() return world.cli("ZCARD", "holdfast_queue:{r}") == 1 end, "nobody waits for r")
    rotate(install, "two", "one")
    for _, key in ipairs { "k", "r", "h" } do world.wait_renewed(key, 1) end
    for _, child in ipairs { leader, standby, runner, holder, waits } do
      assert.is_nil(child:status(), child:output())
    end
    leader:kill("KILL")
    other_than_leads(owner)
    runner:kill("TERM")
    ends_with(waits, "it ran")
    for _, child in ipairs { standby, holder } do
      child:kill("TERM")
      child:wait(PATIENCE)
    end
  end

  it("in the settings file, every running holdfast command continues", function()
    local url = ("url = redis://:%%s@127.0.0.1:%d\n"):format(world.server.port)
    local function install(password) settings(url:format(password)) end
    install "one"
    survive(install)
  end)

  it("in the output of the credentials command, every running holdfast command continues", function()
    settings(("url = redis://127.0.0.1:%d\ncredentials_command = cat %spassword\n")
      :format(world.server.port, directory))
    local function install(password) write(directory .. "password", password .. "\r\n") end
    install "one"
    survive(install)
  end)
end)

describe("a credentials command", function()
  before_each(open_with_password)
  after_each(close_with_password)

  local function ping(shell, more)
    local words = { "ping", "--url", ("redis://127.0.0.1:%d"):format(world.server.port),
      "--credentials-command", shell }
    for name, value in pairs(more or {}) do words[name] = value end
    return command.run(nil, words)
  end

  it("prints user and password, or only the password", function()
    world.cli("ACL", "SETUSER", "ann", "on", ">x y", "~*", "&*", "+@all")
    for _, shell in ipairs { "echo one", "printf one", "printf 'one\\r\\n'", "echo; echo one",
      "printf 'ann\\nx y\\n'", "printf 'ann\\r\\nx y'", "echo one; exec sleep 60 >/dev/null & exit 0" } do
      local code, output = ping(shell)
      assert.equal(0, code, shell .. ": " .. output)
    end
  end)

  -- All servers of a quorum have refused the last login. The loop that watches a job must not wait
  -- for another run of the login command.
  it("runs once for all servers that need a new login while a lock is held", function()
    local core, logins = require "holdfast.core", require "holdfast.command.logins"
    local needs_login, log_in = core.client.needs_login, core.client.log_in
    local login, got = logins.of_command(("echo >>%sruns; echo two"):format(directory)), {}
    function core.client.needs_login() return #got == 0 end
    function core.client.log_in()
      for i = 1, 3 do got[i] = select(2, login.fetch("server", true)) end
    end
    process.wait_until(function()
      login.tick()
      return #got > 0
    end, PATIENCE)
    core.client.needs_login, core.client.log_in = needs_login, log_in
    assert.same({ "two", "two", "two" }, got)
    assert.equal("\n", files.read(directory .. "runs"))
  end)

  it("that fails makes the server unreachable, and its output is never shown", function()
    for shell, said in pairs {
      ["echo s3cret; echo s3cret >&2; exit 3"] = "it exited with code 3",
      ["echo s3cret; kill -9 $$"] = "it was terminated by signal 9",
      ["true"] = "it printed nothing",
      ["echo s3cret; echo s3cret; echo s3cret"] = "it printed 3 lines",
      ["yes s3cret"] = "it printed too much",
    } do
      local code, output = ping(shell)
      assert.equal(69, code, output)
      assert.is_truthy(output:find("the credentials command failed: " .. said, 1, true), output)
      assert.is_nil(output:find("s3cret", 1, true), output)
    end
  end)

  it("in the settings file does not apply to a URL in the environment that contains a login", function()
    write(directory .. "holdfast.conf", "credentials_command = echo wrong\n")
    local url = ("redis://%%s127.0.0.1:%d"):format(world.server.port)
    local function ping_at(login)
      return command.run(nil, { "ping", env = { HOLDFAST_CONFIG = directory .. "holdfast.conf",
        HOLDFAST_URL = url:format(login) } })
    end
    assert.equal(0, ping_at ":one@")
    assert.equal(77, ping_at "")
    write(directory .. "holdfast.conf", ("url = %s\ncredentials_command = echo one\n"):format(url:format ":x@"))
    local code, output = command.run(nil, { "ping", env = { HOLDFAST_CONFIG = directory .. "holdfast.conf" } })
    assert.equal(64, code, output)
  end)
end)

if nginx.is_there() then
  describe("an nginx worker", function()
    local one, two, front

    setup(function()
      one, two = certificates.make(), certificates.make()
      options.password = "one"
      options.tls = { cert = one.server.cert, key = one.server.key, ca = one.ca.cert, clients = "yes" }
    end)
    teardown(function() options.password, options.tls = nil, nil end)
    before_each(open_with_password)
    after_each(function()
      if front then front:stop("TERM") end
      world.cli("FLUSHALL") -- the worker's name would stay for a while
      close()
    end)

    local function install(made, password)
      copy(made.client.cert, directory .. "cert.pem")
      copy(made.client.key, directory .. "key.pem")
      write(directory .. "password", password)
    end

    -- nginx trusts both authorities from the start, because it reads them only then.
    it("continues with a new certificate, a new password and a different user", function()
      install(one, "default one")
      local both = assert(io.open(directory .. "both.pem", "w"))
      for _, made in ipairs { one, two } do
        for line in io.lines(made.ca.cert) do both:write(line, "\n") end
      end
      both:close()
      front = nginx.start {
        http = ([[
          lua_shared_dict news 1m;
          lua_ssl_trusted_certificate %sboth.pem;
          init_by_lua_block {
            local directory = "%s"
            CLIENT = require("holdfast").new {
              url = "rediss://localhost:%d", lease = 3,
              tls = { cert = directory .. "cert.pem", key = directory .. "key.pem" },
              credentials = function(server, refused)
                ngx.sleep(0.01)
                local file = assert(io.open(directory .. "password"))
                local user, password = file:read("*a"):match("(%%S+) (%%S+)")
                file:close()
                return user, password
              end,
            }
          }
        ]]):format(directory, directory, world.server.tls_port),
        server = [[
          location /hold { content_by_lua_block {
            ngx.say(tostring(CLIENT:with_lock("k", { wait = 5 }, function(lock)
              for _ = 1, 3000 do
                ngx.sleep(0.01)
                if ngx.shared.news:get("end") then break end
              end
              return lock:check()
            end)))
          } }
          location /wait { content_by_lua_block {
            ngx.say(tostring(CLIENT:with_lock("k", { wait = 60 }, function() return "next" end)))
          } }
          location /end { content_by_lua_block { ngx.shared.news:set("end", true) ngx.say("so") } }
        ]],
      }
      local holder = front:begin "/hold"
      eventually(function() return world.cli("EXISTS", "k") == 1 end)
      local waits = front:begin "/wait"
      eventually(function() return world.cli("ZCARD", "holdfast_queue:{k}") == 1 end)
      world.cli("ACL", "SETUSER", "ann", "on", ">two", "~*", "&*", "+@all")
      install(two, "ann two")
      world.cli("CONFIG", "SET", "tls-cert-file", two.server.cert, "tls-key-file", two.server.key,
        "tls-ca-cert-file", two.ca.cert)
      world.cli("ACL", "SETUSER", "default", "resetpass", ">other")
      world.server.options.password = "other"
      cut()
      world.wait_renewed("k", 2)
      assert.equal("so\n", front:get("/end").body)
      assert.equal("true\n", assert(holder:finish()).body)
      assert.equal("next\n", assert(waits:finish()).body)
    end)
  end)
end
