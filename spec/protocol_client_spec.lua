-- The client of examples/protocol, which was written from docs/reference/protocol.md alone, shares
-- one lock with the real client.

local crowd = require "spec.support.crowd"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local protocol = require "examples.protocol.client"
local redis = require "spec.support.redis"

local KEY = "crowd"
local QUEUE = crowd.queue_of(KEY)
local GRANT = 1.5
local LONG = 20 -- seconds of a lease that nothing here may wait for

local unpack = rawget(_G, "unpack") or table.unpack

local programs, server, others, client, lock, plain

local digests = {}
for line in io.lines("docs/protocol.sha1") do
  local digest, program = line:match("^(%x+)  (.+)%.lua$")
  digests[program] = digest
end

-- p1 is a client of examples/protocol, h1 a real one.
local function options_of(name, more)
  local options = { kind = name:find("^p") and "protocol" or "holdfast", grant_lease = GRANT,
    lease = LONG, wait = 30 }
  if options.kind == "protocol" then options.programs = programs end
  for option, value in pairs(more or {}) do options[option] = value end
  return options
end

local function add(name, more) return others:add(name, options_of(name, more)) end

local function line_up(names, more)
  for _, name in ipairs(names) do others:line_up({ name }, options_of(name, more)) end
end

-- Asserts that all processes have ended: one had the lock at a time, no update was lost, and tokens
-- grew.
local function assert_turns(turns)
  local history = others:assert_turns(turns)
  crowd.assert_rising(history.tokens)
  return history
end

local function in_soon(name)
  return process.wait_until(function() return others:turns_of(name) > 0 end, LONG / 2)
end

-- Returns a reply as the page shows it.
local function as_shown(reply)
  local words = {}
  for i, number in ipairs(type(reply) == "table" and reply or { reply }) do
    words[i] = number > 1e12 and "TOKEN" or ("%d"):format(number)
  end
  return table.concat(words, " ")
end

local function is_queued(queue)
  return process.wait_until(function() return server:cli("ZCOUNT", queue, "(0", "+inf") == 1 end, 20)
end

describe("a client written from the protocol page", function()
  setup(function()
    programs = process.directory()
    assert(process.succeeds("lua5.4 tools/embed.lua --sent " .. programs))
  end)

  teardown(function() process.remove(programs) end)

  before_each(function()
    server = redis.start { tcp = true }
    others = crowd.new(server, KEY)
    client = holdfast.new { url = server:url(), grant_lease = GRANT }
    lock = client:lock(KEY, { lease = LONG })
    plain = protocol.new(server:url(), { programs = programs, grant_lease = GRANT * 1000,
      lease = LONG * 1000 })
  end)

  after_each(function()
    client:close()
    plain:close()
    others:clear()
  end)

  it("sends the same programs as the real client", function()
    assert(lock:acquire(0)) assert(lock:release())
    assert.equal(1, server:cli("SCRIPT", "EXISTS", digests.acquire)[1])
    assert.equal(1, server:cli("SCRIPT", "EXISTS", digests.release)[1])
    assert(plain:acquire(KEY)):release()
    for _, name in ipairs { "acquire", "release" } do
      assert.equal(digests[name], plain.sha[name])
    end
  end)

  it("gets the replies that the page shows for the smallest lock", function()
    local page = assert(io.open("docs/reference/protocol.md")):read("*a")
    local commands = page:match("\n## The smallest safe lock\n.-\n```text\n(.-)```")
    local ran = 0
    for name, arguments, shown in commands:gmatch("(%l+)([^=]+)= ([^\n]+)") do
      local words = {}
      for word in arguments:gmatch("%S+") do words[#words + 1] = word end
      server:cli("SCRIPT", "LOAD", assert(io.open(programs .. "/" .. name .. ".lua")):read("*a"))
      local reply = server:cli("EVALSHA", digests[name], unpack(words))
      assert.equal(shown, as_shown(reply), name)
      ran = ran + 1
    end
    assert.equal(3, ran)
  end)

  it("is queued in order of arrival among real clients", function()
    local names = { "p1", "h1", "h2", "p2", "p3", "h3" }
    assert(lock:acquire(0))
    line_up(names)
    assert(lock:release())
    assert.same(names, assert_turns(6).names)
  end)

  it("confirms a grant, so that the hold outlives the grant lease", function()
    assert(lock:acquire(0))
    add("p1", { inside = 2 * GRANT })
    assert(others:wait_queued(1))
    line_up { "h1" }
    assert(lock:release())
    assert.truthy(in_soon("p1"))
    assert(process.wait_until(function() return server:cli("ZCOUNT", QUEUE, 0, 0) == 0 end, 20))
    assert.is_true(server:cli("PTTL", KEY) > LONG * 500)
    assert.same({ "p1", "h1" }, assert_turns(2).names)
    assert.equal(0, server:cli("EXISTS", QUEUE))
  end)

  for _, pair in ipairs { { "p1", "h1" }, { "h1", "p1" } } do
    local dead, next_one = pair[1], pair[2]

    it(("lets the next waiter pass (%s killed while waiting, then %s)"):format(dead, next_one), function()
      assert(lock:acquire(0))
      line_up { dead, next_one }
      others.workers[1]:stop()
      assert(lock:release())
      assert.truthy(in_soon(next_one))
      table.remove(others.workers, 1)
      assert.same({ next_one }, assert_turns(1).names)
    end)

    it(("lets the next waiter pass (%s stopped while the lock was granted to it, then %s)"):format(dead, next_one),
      function()
      assert(lock:acquire(0))
      line_up({ dead, next_one })
      others.workers[1]:kill("STOP")
      assert(lock:release())
      assert.truthy(in_soon(next_one))
      assert(others.workers[2]:wait(20))
      others.workers[1]:kill("CONT")
      assert.same({ next_one, dead }, assert_turns(2).names)
    end)
  end

  it("leaves no key behind when its wait ends", function()
    assert(lock:acquire(0))
    -- it asks twice, and would ask again after LONG
    local patient = protocol.new(server:url(), { programs = programs, grant_lease = LONG * 1000 })
    local began = process.now()
    assert.is_nil(patient:acquire(KEY, 300))
    assert.is_true(process.now() - began < LONG / 2)
    assert.equal(0, server:cli("EXISTS", QUEUE))
    patient:close()
    assert.is_true(process.wait_until(function()
      return #server:cli("PUBSUB", "CHANNELS", "holdfast_grant:*") == 0
    end, 20))
    assert(lock:release())
  end)

  it("renews, and knows by its own clock how long its hold is valid", function()
    local hold = assert(plain:acquire(KEY))
    assert.is_true(hold:left() <= LONG * 990 - 2)
    server:cli("PEXPIRE", KEY, 5000)
    assert.is_true(hold:renew())
    assert.is_true(server:cli("PTTL", KEY) > LONG * 500)
    server:cli("DEL", KEY)
    assert.is_false(hold:renew())
    assert.equal(0, hold:left())
    assert.is_false(hold:release())
  end)

  it("never trusts a hold past its validity, whatever is stored on the server", function()
    local brief = protocol.new(server:url(), { programs = programs, lease = 1000 })
    local hold = assert(brief:acquire(KEY))
    server:cli("PERSIST", KEY)
    assert.truthy(process.wait_until(function() return hold:left() == 0 end, 20))
    assert.is_false(hold:renew())
    assert.is_true(hold:release())
    brief:close()
  end)

  it("ignores expired grants, and grants for a different queue score, kind, key or format", function()
    assert(lock:acquire(0))
    -- it asks again only after a message
    line_up({ "p1" }, { grant_lease = LONG })
    local monitor = server:monitor()
    local head = server:cli("ZRANGE", QUEUE, 0, 0, "WITHSCORES")
    local place = head[2]
    local uuid, number = head[1]:match("^1l([%x-]+):(%d+):")
    local function notify(...)
      server:cli("PUBLISH", crowd.channel_of(uuid), table.concat({ ... }, " "))
    end
    notify("1 grant l", number, place + 1, 7, 5000, KEY)
    notify("1 grant m", number, place, 7, 5000, KEY)
    notify("1 grant l", number, place, 7, 5000, "another")
    notify("2 grant l", number, place, 7, 5000, KEY)
    notify("1 news", number)
    process.sleep(0.2) -- a grant of 100 ms that comes now is already over
    notify("1 grant l", number, place, 7, 100, KEY)
    notify("1 recheck", number)
    local asked = function() return monitor:count("EVALSHA") end
    -- four such grants, one recheck
    assert.truthy(process.wait_until(function() return asked() == 5 end, 20))
    for _, entry in ipairs(monitor:commands()) do
      if entry.args[1]:upper() == "EVALSHA" then assert.equal(digests.acquire, entry.args[2]) end
    end
    monitor:close()
    assert.equal(0, others:turns_of("p1"))
    assert(lock:release())
    assert.is_true(assert_turns(1).tokens[1] > 7)
  end)

  it("subscribes to the release channel of a holder that uses another library", function()
    server:cli("HSET", KEY, "somebody", 1)
    server:cli("PEXPIRE", KEY, LONG * 1000)
    line_up({ "p1" }, { grant_lease = LONG })
    assert.truthy(process.wait_until(function() return server:cli("PUBSUB", "NUMPAT") == 1 end, 20))
    server:cli("DEL", KEY)
    server:cli("PUBLISH", "redisson_lock__channel:{" .. KEY .. "}", "0")
    assert.truthy(in_soon("p1"))
    assert_turns(1)
  end)

  it("derives the right names for keys with braces, spaces and wildcards", function()
    for key, queue in pairs {
      ["a {b}c"] = "holdfast_queue::a {b}c", ["what? [a]*\\"] = "holdfast_queue:{what? [a]*\\}",
      ["{x"] = "holdfast_queue::{x",
    } do
      local real = assert(client:lock(key, { lease = LONG }):acquire(0))
      local waiter = others:join("p1", process.lua { file = "spec/support/crowd_worker.lua",
        args = {
        server:url(), others.store.path, key, "p1", "kind=protocol", "programs=" .. programs,
        "inside=0.2",
      } })
      assert.truthy(is_queued(queue))
      assert(real:release()) assert(waiter:wait_output("in\n", 20), waiter:output())
      assert(real:acquire(20)) assert(real:release())
    end
    assert_turns(3)
  end)

  it("reconnects after an outage, and loads the programs again", function()
    assert(plain:acquire(KEY)):release()
    server:cli("SCRIPT", "FLUSH")
    assert(plain:acquire(KEY)):release()
    server:kill()
    assert.is_false((pcall(plain.acquire, plain, KEY)))
    server:restart()
    assert.is_true(assert(plain:acquire(KEY)):release())
  end)

  it("prints a line for each time it acquires, in examples/protocol/turns.lua", function()
    local turns = process.lua { file = "examples/protocol/turns.lua",
      args = { server:tcp_url(), KEY, 3, programs } }
    assert.same({ "exit", 0 }, { turns:wait(20) }, turns:output())
    assert.equal(3, select(2, turns:output():gsub("turn %d token %d+, 29%.%d s left\n", "")))
  end)
end)
