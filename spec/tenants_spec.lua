-- Two users of one server who do not trust each other, each with the rights that holdfast acl
-- prints: b cannot change what belongs to a.

local acl = require "holdfast.command.acl"
local fake = require "spec.support.fake"
local process = require "spec.support.process"
local resp = require "spec.support.resp"

local world = require("spec.support.world").new()

local PATIENCE = 20
local KINDS = acl.kinds

local b -- a connection of user b

local function add_user(name)
  local rule = { "ACL", "SETUSER", name }
  for _, word in ipairs(acl.rule_words(name .. ":", { kinds = KINDS })) do rule[#rule + 1] = word end
  rule[#rule + 1] = ">secret"
  assert.equal("OK", world.server:cli(rule))
end

local function url_of(name) return ("unix://%s:secret@%s"):format(name, world.server.path) end

before_each(function()
  world.open()
  add_user "a"
  add_user "b"
  b = assert(resp.connect { path = world.server.path })
  assert.equal("OK", b:call("AUTH", "b", "secret"))
end)

after_each(function()
  b:close()
  world.close()
end)

local function client_of_a()
  return world.client { url = url_of "a", prefix = "a:", tenant = "a:" }
end

-- A process of user a, which runs this code with `client` and `say`. `tenant` is its client's
-- option.
local function program_of_a(code, tenant)
  return world.program {
    code = [[
      local client = require("holdfast").new { url = arg[1], prefix = "a:", tenant = arg[2] ~= "" and arg[2] or nil }
      local function say(...) print(...) io.stdout:flush() end
    ]] .. code .. "\nclient:close()",
    args = { url_of "a", tenant or "a:" },
  }
end

local function await_queue(key)
  local queue
  assert(process.wait_until(function()
    queue = world.cli("ZRANGE", "holdfast_queue:{" .. key .. "}", 0, -1, "WITHSCORES")
    return #queue == 2 and world.cli("PUBSUB", "NUMSUB", "holdfast_grant:" .. queue[1]:sub(3, 38))[2] == 1
  end, PATIENCE))
  local uuid, number = queue[1]:match("^1%l([%x-]+):0?(%d+):")
  return { uuid = uuid, number = number, place = queue[2], channel = "holdfast_grant:" .. uuid }
end

local function scripts_run()
  local text = world.cli("INFO", "commandstats")
  return tonumber(text:match("cmdstat_evalsha:calls=(%d+)")) or 0
end

describe("a tenant", function()
  local function refused(...)
    local reply = b:call(...)
    local text = type(reply) == "table" and reply.err or tostring(reply)
    assert.truthy(text:find("^NOPERM"), table.concat({ ... }, " ") .. ": " .. text)
  end

  it("cannot write another tenant's keys or use its channels", function()
    local seen = 0
    for _, word in ipairs(acl.rule_words("a:", { kinds = KINDS, cluster = true })) do
      local sign, pattern = word:match("^([~&])(.*)$")
      local name = (pattern or ""):gsub("%*", "k")
      if sign == "~" then
        refused("SET", name, "1")
        refused("ZADD", name, "1", "ghost")
        refused("GET", name)
      elseif sign == "&" and pattern ~= "holdfast_grant:*" then
        refused("PUBLISH", name, "0")
        refused("SUBSCRIBE", name)
      end
      seen = seen + (sign and 1 or 0)
    end
    assert.is_true(seen > 30)
    local uuid = "11e9e134-b940-8130-bb64-4c7eb4c77077"
    refused("SET", "holdfast_client:" .. uuid, "host 1")
    refused("SET", "holdfast_wait:" .. uuid .. ":1", "1 x l a:k")
  end)

  it("cannot list another tenant's keys and clients", function()
    refused("PSUBSCRIBE", "holdfast_grant:*")
    refused("PUBSUB", "CHANNELS", "*")
    refused("SCAN", "0")
    refused("KEYS", "*")
    refused("RANDOMKEY")
  end)

  it("with +scan, +psubscribe or +pubsub can list another tenant's keys and clients", function()
    local lock = assert(client_of_a():lock("k"):acquire(0))
    local waiter = program_of_a 'say(client:lock("k"):acquire(60) and "acquired")'
    local channel = await_queue("a:k").channel
    assert.equal("OK", world.cli("ACL", "SETUSER", "b", "+scan", "+psubscribe", "+pubsub|channels"))
    assert.truthy(table.concat(b:call("SCAN", "0", "COUNT", "1000")[2], " "):find("a:k", 1, true))
    assert.same({ channel }, b:call("PUBSUB", "CHANNELS", "*"))
    assert(lock:release())
    assert.same({ "exit", 0 }, { waiter:wait(PATIENCE) })
  end)

  it("cannot make a waiter an owner by forging a grant", function()
    local lock = assert(client_of_a():lock("k"):acquire(0))
    local waiter = program_of_a 'say(client:lock("k"):acquire(60) and "acquired")'
    local wait = await_queue "a:k"
    local asked = scripts_run()
    for _, place in ipairs { wait.place, "7" } do
      local grant = ("1 grant l %s %s 99999999999 2000 a:k"):format(wait.number, place)
      assert.equal(1, b:call("PUBLISH", wait.channel, grant))
    end
    assert(process.wait_until(function()
      return scripts_run() > asked or waiter:output() ~= ""
    end, PATIENCE))
    assert.equal("", waiter:output())
    assert.same({ [lock:owner()] = 1 }, (function()
      local fields = world.hash "a:k"
      for owner, count in pairs(fields) do fields[owner] = tonumber(count) end
      return fields
    end)())
    assert(lock:release())
    assert.same({ "exit", 0 }, { waiter:wait(PATIENCE) })
    assert.equal("acquired\n", waiter:output())
  end)

  -- Such a user may publish a grant, and could find the waiter with SCAN or KEYS.
  it("can make a waiter without the option `tenant` an owner by forging a grant", function()
    local lock = assert(client_of_a():lock("k"):acquire(0))
    local waiter = program_of_a('say(client:lock("k"):acquire(60) and "acquired")', "")
    local wait = await_queue "a:k"
    local grant = ("1 grant l %s %s 99999999999 2000 a:k"):format(wait.number, wait.place)
    assert.equal(1, b:call("PUBLISH", wait.channel, grant))
    assert(process.wait_until(function() return waiter:output() ~= "" end, PATIENCE))
    assert.equal("acquired\n", waiter:output())
    assert.is_true(lock:check())
    assert(lock:release())
    waiter:wait(PATIENCE)
  end)

  -- The forged keys say that the owner of a:two waits for a:one, is in the queue, and listens.
  it("cannot create a false deadlock", function()
    local client = client_of_a()
    local two, gate = client:lock "two", client:lock "gate"
    assert(two:acquire(0)) assert(gate:acquire(0))
    local waiter = program_of_a [[
      local held = assert(client:lock("one"):acquire(0))
      assert(client:lock("gate"):acquire(60)):release()
      say(select(3, client:lock("two", { deadlock_check = 0.5 }):acquire(1.1)))
    ]]
    await_queue "a:gate"
    local forged = "11e9e134-b940-8130-bb64-4c7eb4c77077:7"
    b:call("SUBSCRIBE", "holdfast_grant:" .. forged:sub(1, 36))
    world.cli("ZADD", "holdfast_queue:{a:one}", 5, "1l" .. forged .. ":1000")
    for _, name in ipairs { "holdfast_wait:", "holdfast_wait:b:" } do
      world.cli("SET", name .. two:owner(), "1 " .. forged .. " l a:one", "PX", 60000)
    end
    assert(gate:release())
    assert.same({ "exit", 0 }, { waiter:wait(PATIENCE) })
    assert.equal("busy\n", waiter:output())
    world.cli("FLUSHALL")
  end)

  it("cannot pose as another tenant's holder by publishing a name", function()
    local client = client_of_a()
    local lock = assert(client:lock("k"):acquire(0))
    local uuid = lock:owner():sub(1, 36)
    assert(process.wait_until(function()
      return world.cli("EXISTS", "holdfast_client:a:" .. uuid) == 1
    end, PATIENCE))
    world.cli("SET", "holdfast_client:" .. uuid, "evil 1", "PX", 60000)
    local info = assert(lock:info())
    assert.is_string(info.host)
    assert.are_not.equal("evil", info.host)
    world.cli("DEL", "holdfast_client:" .. uuid)
    assert(lock:release())
  end)

  it("cannot make another tenant's clients write anything by forging grants", function()
    local other = assert(client_of_a():lock("other"):acquire(0))
    local waiter = program_of_a 'say(client:lock("other"):acquire(60) and "acquired")'
    local wait = await_queue "a:other"
    for letter in ("lmgrwpfcs"):gmatch "." do
      for _, key in ipairs { "a:free", "b:free" } do
        local grant = ("1 grant %s %s 5 88 2000 %s"):format(letter, wait.number + 7, key)
        assert.equal(1, b:call("PUBLISH", wait.channel, grant))
      end
    end
    assert(other:release())
    assert.same({ "exit", 0 }, { waiter:wait(PATIENCE) })
    for _, pattern in ipairs { "*free*", "holdfast_call:*" } do
      assert.same({}, world.cli("KEYS", pattern))
    end
  end)

  it("cannot delay another tenant's renewals by flooding its clients with forged grants", function()
    local other = assert(client_of_a():lock("other"):acquire(0))
    local holder = program_of_a [[
      local lock = assert(client:lock("k", { lease = 1, watchdog = true }):acquire(0))
      client:lock("other"):acquire(60)
      say(lock:is_held(), lock:lost() or "kept", lock:release())
    ]]
    local wait = await_queue "a:other"
    local flood = [[for i = ARGV[2], ARGV[2] + 999 do
      redis.call('PUBLISH', ARGV[1], '1 grant l ' .. i .. ' 5 88 2000 a:' .. i)
    end]]
    for i = 1, 20 do b:call("EVAL", flood, "0", wait.channel, 1000 * i) end
    assert(other:release())
    assert.same({ "exit", 0 }, { holder:wait(PATIENCE) })
    assert.equal("true\tkept\ttrue\n", holder:output())
  end)

  it("receives an event if the server's scripts can be changed by other users", function()
    local function exposed_at(url, tenant)
      local seen = {}
      local client = world.client { url = url, tenant = tenant,
        on_event = function(event) seen[event.event] = event.server end }
      client:ping()
      client:close()
      assert.is_string(seen.opened)
      return seen.tenant_exposed
    end
    local old = fake.server { reply = ":1\r\n", login = true, info = "redis_version:6.2.14" }
    assert.equal("127.0.0.1:" .. old.port, exposed_at(old.url, "a:"))
    assert.is_nil(exposed_at(old.url))
    old:stop()
    local reply = world.cli("EVAL", "getmetatable('').__index = string", "0")
    local is_mended = type(reply) == "table" and reply.err ~= nil
    assert.equal(is_mended, exposed_at(url_of "a", "a:") == nil)
  end)
end)
