-- on_change of client:lead: how candidates learn who leads.

local loops = require "spec.support.loops"
local nginx = require "spec.support.nginx"
local process = require "spec.support.process"
local world = require("spec.support.world").new()

local PATIENCE = 20
local LEASE = 3 -- seconds
local SLOW = 40 -- seconds of a grant lease; no test is long enough for a recheck

before_each(world.open)
after_each(function()
  for _, child in ipairs(world.children) do child:stop() end -- a killed one leaves its place
  world.cli("FLUSHALL")
  for _, server in ipairs(world.servers) do server:cli("FLUSHALL") end
  world.close()
end)

local eventually = process.eventually

-- Prints each leader as "sees NAME PID TOKEN SINCE". Leads until the file `stop` exists, then
-- resigns.
local CANDIDATE = [[
  local holdfast, process = require "holdfast", require "spec.support.process"
  local url, name, grant_lease, stop = arg[1], arg[2], tonumber(arg[3]), arg[4]
  local client = holdfast.new { url = url, name = name, lease = 3, grant_lease = grant_lease }
  local function say(...)
    print(...)
    io.stdout:flush()
  end
  local function told() return io.open(stop) end
  client:lead("chief", { on_change = function(leader)
    assert(leader.host and leader.since > 1.7e9)
    say(("sees %s %d %.0f %.3f"):format(leader.name, leader.pid, leader.token, leader.since))
  end }, function(term)
    say "leads"
    while term:is_leader() and not told() do process.sleep(0.01) end
    if term:is_leader() then term:resign() end
  end)
  client:close()
  say "ends"
]]

describe("on_change in several processes", function()
  local children, directory

  before_each(function() children, directory = {}, process.directory() end)
  after_each(function() process.remove(directory) end)

  local function start(name, url, grant_lease)
    children[name] = world.program { code = CANDIDATE,
      args = { url or world.server:url(), name, grant_lease or SLOW, directory .. "/" .. name } }
    return children[name]
  end

  local function resign(name) assert(io.open(directory .. "/" .. name, "w")):close() end

  -- → what this candidate has seen, in order: a list of { name, pid, token, since }
  local function seen(name)
    local list = {}
    for of, pid, token, since in children[name]:output():gmatch("sees (%S+) (%d+) (%d+) (%S+)\n") do
      list[#list + 1] = { name = of, pid = tonumber(pid), token = tonumber(token),
        since = tonumber(since) }
    end
    return list
  end

  local function names_of(name)
    local list = {}
    for i, each in ipairs(seen(name)) do list[i] = each.name end
    return table.concat(list, " ")
  end

  local function sees(name, expected)
    eventually(function() return names_of(name) == expected end, PATIENCE, function()
      local said = { ("%s does not see %s"):format(name, expected) }
      for each, child in pairs(children) do said[#said + 1] = each .. ": " .. child:output() end
      return table.concat(said, "\n")
    end)
  end

  local function leads(name) return children[name]:output():find "leads" ~= nil end

  local function waiting(count, cli, key)
    local queue = ("holdfast_queue:{%s}"):format(key or "chief")
    eventually(function() return (cli or world.cli)("ZCARD", queue) == count end)
  end

  -- Waits until the leader and `count` waiters have published their names: on a busy machine, a
  -- leader may be reported before that, without its name.
  local function named(count, cli)
    eventually(function() return #(cli or world.cli)("KEYS", "holdfast_client:*") == count + 1 end)
  end

  local function check_order()
    for name in pairs(children) do
      local last = 0
      for _, each in ipairs(seen(name)) do
        assert.is_true(each.token > last, children[name]:output())
        last = each.token
        assert.is_true(math.abs(each.since - each.token / 1e6) < 0.01)
        assert.equal(children[each.name].pid, each.pid)
      end
    end
  end

  it("reports each leader to the leader itself and to two waiters by a message", function()
    start "a"
    eventually(function() return leads "a" end)
    start "b"
    waiting(1)
    start "c"
    waiting(2)
    named(2)
    for name in pairs(children) do sees(name, "a") end
    resign "a"
    sees("b", "a b")
    sees("c", "a b")
    resign "b"
    sees("c", "a b c")
    for _, name in ipairs { "a", "b" } do
      eventually(function() return children[name]:output():find "ends" ~= nil end)
    end
    check_order()
  end)

  it("reports the next leader to a waiter after the server lost its data", function()
    local server = world.another()
    start("a", server:url(), 1)
    eventually(function() return leads "a" end)
    start("b", server:url(), 1)
    sees("b", "a")
    server:restart(false)
    eventually(function() return names_of "b" ~= "a" end)
    resign "a"
    eventually(function() return names_of("b"):find "b$" ~= nil end)
    check_order()
  end)

  it("reports each leader to a tenant, whose user may not subscribe to patterns", function()
    local server = world.another()
    local acl = require "holdfast.command.acl"
    local words = acl.rule_words("t:", { kinds = { acl.kinds[1] } })
    server:cli("ACL", "SETUSER", "t", (table.unpack or unpack)(words))
    server:cli("ACL", "SETUSER", "t", ">secret")
    local url = server:url():gsub("unix://", "unix://t:secret@")
    local code = CANDIDATE:gsub("url = url,", 'url = url, tenant = "t:", prefix = "t:",')
    local function tenant(name)
      children[name] = world.program { code = code,
        args = { url, name, SLOW, directory .. "/" .. name } }
    end
    tenant "a"
    eventually(function() return leads "a" end)
    local function cli(...) return server:cli(...) end
    tenant "b"
    waiting(1, cli, "t:chief")
    tenant "c"
    waiting(2, cli, "t:chief")
    named(2, cli)
    for name in pairs(children) do sees(name, "a") end
    resign "a"
    sees("c", "a b")
    for _, line in ipairs(server:cli("ACL", "LOG")) do assert.same({}, line) end
  end)
end)

describe("on_change", function()
  -- A separate program, because a coroutine of the test would block it.
  local WATCHER = [[
    local holdfast = require "holdfast"
    local client = holdfast.new { url = arg[1], name = "two", grant_lease = tonumber(arg[2]) }
    local ok, message, code = client:lead("chief", { on_event = function(event) print(event.event) end,
      on_change = function(leader)
        print(("sees %s %s %s"):format(leader.host and leader.name, leader.token and "token" or "none",
          os.time() - leader.since < 60))
        io.stdout:flush()
      end }, function(term) print "leads" term:resign() end)
    local stats = client:stats()
    print(message, code, stats.waits)
    client:close()
  ]]

  local function watcher(grant_lease)
    return world.program { code = WATCHER, args = { world.server:url(), grant_lease } }
  end

  it("gets no host from a holder that publishes none, and no token if there is none", function()
    world.hold_as("b983c153-7421-469a-addb-44fb92259a1b:1", "chief", 60000)
    local child = watcher(SLOW)
    assert(child:wait_output("sees nil none true\n", PATIENCE))
    world.cli("DEL", "chief")
  end)

  it("never reports a leader older than the last one", function()
    local UUID = "b983c153-7421-469a-addb-44fb92259a1b"
    world.cli("SET", "holdfast_client:" .. UUID, "host 1 java") -- so that it is reported at once
    world.hold_as(UUID .. ":1", "chief", 60000)
    world.cli("SET", "redisson_lock_token:{chief}", "5000")
    local child = watcher(0.1)
    assert(child:wait_output("sees java token", PATIENCE))
    local monitor = world.server:monitor()
    world.cli("SET", "redisson_lock_token:{chief}", "4000")
    -- the lock is never free: otherwise, the candidate could become the leader
    world.hold_as(UUID .. ":2", "chief", 60000)
    world.cli("HDEL", "chief", UUID .. ":1")
    eventually(function() return monitor:count "EVALSHA" >= 6 end)
    monitor:close()
    local function seen() return select(2, child:output():gsub("sees", "")) end
    assert.equal(1, seen())
    world.cli("SET", "redisson_lock_token:{chief}", "6000")
    eventually(function() return seen() == 2 end)
    child:stop()
    assert.equal(2, seen())
  end)

  it("may raise an error, which is reported once, and the candidate continues", function()
    local lock = assert(world.client():lock("chief"):acquire())
    local child = world.run [[
      local client = require("holdfast").new { url = arg[1] }
      local calls = 0
      print(client:lead("chief", { on_change = function()
        calls = calls + 1
        error "my own"
      end }, function(term)
        term:resign()
        return calls
      end))
      client:close()
    ]]
    assert(child:wait_output("my own", PATIENCE))
    lock:release()
    assert.same({ "exit", 0 }, { child:wait(PATIENCE) })
    local output = child:output()
    assert.matches("holdfast: error in on_change %(reported only once%): [^\n]+my own\n2\n$", output)
    assert.equal(1, select(2, output:gsub("my own", "")))
  end)

  it("may use the client, resign the term or close the client during a blocking wait", function()
    for _, what in ipairs { "last:resign()", "client:close()" } do
      local child = world.run([[
        local holdfast, command = require "holdfast", require("holdfast.driver").command
        local client, other, last = holdfast.new { url = arg[1] }, holdfast.new { url = arg[1] }, nil
        local owner = "b983c153-7421-469a-addb-44fb92259a1b"
        print((select(3, client:lead("own", { on_change = function(leader)
          assert(client:lock("other"):acquire())
          assert(client:lock("other"):release())
          if leader.name == "two" then ]] .. what .. [[ end
        end }, function(term)
          last = term
          other:lock("own"):force_release()
          assert(not client:lock("own"):check() and not term:is_leader())
          assert(command(other, { "HSET", "own", owner .. ":1", "1" }))
          assert(command(other, { "PEXPIRE", "own", "60000" }))
          assert(command(other, { "SET", "holdfast_client:" .. owner, "h 1 two" }))
        end))))
        client:close()
        other:close()
      ]])
      assert.same({ "exit", 0 }, { child:wait(PATIENCE) }, child:output())
      assert.equal(what:find "close" and "closed\n" or "lost\n", child:output())
      world.cli("DEL", "own", "holdfast_client:b983c153-7421-469a-addb-44fb92259a1b")
    end
  end)

  it("lets a signal end an interruptible wait", function()
    local lock = assert(world.client { name = "one" }:lock("chief"):acquire())
    local child = world.run [[
      local client = require("holdfast").new { url = arg[1] }
      local fine, _, _, code = pcall(client.lead, client, "chief", { interruptible = true,
        on_change = function() print "sees" io.stdout:flush() end }, function() end)
      print(fine, code)
      client:close()
    ]]
    assert(child:wait_output("sees", PATIENCE))
    child:kill "INT"
    child:wait(PATIENCE)
    eventually(function() return world.cli("ZCARD", "holdfast_queue:{chief}") == 0 end)
    lock:release()
  end)
end)

for _, loop in ipairs(loops) do
  describe("on_change under " .. loop.name, function()
    local function client(options)
      options = options or {}
      options.driver, options.grant_lease = loop.driver, SLOW
      return world.client(options)
    end

    it("reports each leader to waiters by a message, and may itself wait", function()
      local seen, ended = {}, 0
      local function know(token) -- whether all remaining candidates know the token
        for _, tokens in pairs(seen) do
          if tokens[#tokens] ~= token then return false end
        end
        return true
      end
      local function run(name)
        local one, tokens = client { name = name }, {}
        seen[name] = tokens
        one:lead("chief", { lease = LEASE, on_change = function(leader)
          tokens[#tokens + 1] = leader.token
          loop.sleep(name == "b" and 1.5 or 0)
        end }, function(term)
          assert.is_true(loop.wait_until(function() return know(term:token()) end, PATIENCE))
          assert.is_true(term:resign())
        end)
        seen[name], ended = nil, ended + 1
        one:close()
        assert.equal(({ a = 1, b = 2, c = 3 })[name], #tokens)
        for i = 2, #tokens do assert.is_true(tokens[i] > tokens[i - 1]) end
      end
      loop.run(function()
        seen.c = {} -- the first term lasts until the last candidate has come
        for i, name in ipairs { "a", "b", "c" } do
          loop.spawn(function() run(name) end)
          assert.is_true(loop.wait_until(function()
            return world.cli("EXISTS", "chief") == 1 and world.cli("ZCARD", "holdfast_queue:{chief}") == i - 1
          end))
        end
        assert.is_true(loop.wait_until(function() return ended == 3 end, PATIENCE))
      end)
    end)

    it("may resign the term, and leaves nothing if its coroutine is collected", function()
      local one, other, first, code = client(), client(), nil, nil
      loop.run(function()
        local held
        loop.spawn(function()
          code = select(3, one:lead("chief", { lease = LEASE, on_change = function()
            if held then first:resign() end
          end }, function(term)
            first = term
            loop.wait_until(function() return not term:is_leader() end, PATIENCE)
          end))
        end)
        assert.is_true(loop.wait_until(function() return first ~= nil end))
        world.cli("DEL", "chief")
        held = assert(other:lock("chief"):acquire(0))
        assert.is_true(loop.wait_until(function() return code ~= nil end, PATIENCE))
        assert.is_true(loop.wait_until(function()
          return world.cli("ZCARD", "holdfast_queue:{chief}") == 0
        end, PATIENCE))
        assert(held:release())
        one:close()
        other:close()
      end)
      assert.equal("lost", code)
    end)
  end)
end

if not nginx.is_there() then return end

describe("on_change under ngx_lua", function()
  it("reports each leader to all workers by a message, and again after a reload", function()
    local front = nginx.start { workers = 2, http = ([[
      lua_shared_dict seen 1m;
      init_by_lua_block {
        CLIENT = require("holdfast").new { url = "%s", lease = 3, grant_lease = %d }
      }
      init_worker_by_lua_block {
        assert(ngx.timer.at(0, function()
          CLIENT:lead("chief", { on_change = function(leader)
            ngx.sleep(0.01)
            ngx.shared.seen:set(ngx.worker.pid(), leader.pid)
          end }, function(term)
            while term:is_leader() do ngx.sleep(0.01) end
          end)
        end))
      }
    ]]):format(world.server:url(), SLOW), server = [[
      location = / { content_by_lua_block {
        for _, pid in ipairs(ngx.shared.seen:get_keys()) do
          ngx.print(pid, "=", ngx.shared.seen:get(pid), " ")
        end
      } }
    ]] }
    finally(function()
      front:stop "TERM"
      world.cli("FLUSHALL")
    end)

    -- → the leader that both workers see, or nil if they do not agree yet
    local function leader()
      local body, workers = front:get("/").body, front:workers()
      local first = body:match(workers[1] .. "=(%d+) ")
      local second = workers[2] and body:match(workers[2] .. "=(%d+) ")
      return first and first == second and tonumber(first) or nil
    end

    eventually(function()
      local pid, workers = leader(), front:workers()
      return pid and (pid == workers[1] or pid == workers[2])
    end, PATIENCE, "no common leader")
    local before = leader()
    front:reload()
    eventually(function()
      local pid, workers = leader(), front:workers()
      return pid and pid ~= before and (pid == workers[1] or pid == workers[2])
    end, PATIENCE, "no common leader after the reload")
    assert.same({}, front:errors())
  end)
end)
