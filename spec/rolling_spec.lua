-- A rolling upgrade: clients of the protocol that is kept in spec/fixtures, and today's clients, on
-- one lock. A program that changes what keys, members or messages contain, without a new format
-- digit, fails here.

local crowd = require "spec.support.crowd"
local files = require "spec.support.files"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local scenarios = require "spec.support.scenarios"

local unpack = table.unpack or unpack

local KEY = "crowd"
local QUEUE = crowd.queue_of(KEY)
local GRANT, LEASE = 0.5, 20

local read = files.read

local number = read("docs/reference/protocol.md"):match("^# Protocol (%d+)\n")
local kept = "spec/fixtures/protocol" .. number
local kept_client = ("spec.fixtures.protocol%s.client"):format(number)
local protocol = require(kept_client)
local today, unpacked -- directories: today's programs; the kept protocol with its programs

setup(function()
  today, unpacked = process.directory(), process.directory()
  assert(process.succeeds("lua5.4 tools/embed.lua --sent " .. today))
  assert(process.succeeds(("cp %s/* %s && mkdir %s/programs"):format(kept, unpacked, unpacked)))
  local unpack_programs = "lua5.4 tools/embed.lua --unpack %s/programs.txt %s/programs"
  assert(process.succeeds(unpack_programs:format(kept, unpacked)))
end)

teardown(function()
  process.remove(today)
  process.remove(unpacked)
end)

local function kept_programs() return unpacked .. "/programs" end

local function program(directory, name) return read(("%s/%s.lua"):format(directory, name)) end

-- Each function returns the programs for the i-th step.
local TURNS = {
  { "with today's programs", function() return today end },
  { "with the kept and today's programs in turn, the kept ones first", function(i)
    return i % 2 == 1 and kept_programs() or today
  end },
  { "with today's and the kept programs in turn, today's first", function(i)
    return i % 2 == 0 and kept_programs() or today
  end },
}

local function transcript(server, directory_of)
  local parts = {}
  for i, scenario in ipairs(scenarios.list) do
    parts[i] = scenarios.run(server, scenario, function(step, name)
      return program(directory_of(step), name)
    end)
  end
  return parts
end

describe("protocol " .. number, function()
  local server

  before_each(function() server = redis.start() end)
  after_each(function() server:stop() end)

  it("has a kept copy of its programs whose checksums match", function()
    local child = process.start { "sh", "-c", ("cd %s && sha1sum --quiet -c SHA1"):format(unpacked) }
    assert.same({ "exit", 0 }, { child:wait(20) }, child:output())
  end)

  it("still produces the transcript that was kept for it", function()
    local parts = transcript(server, kept_programs)
    local path = os.getenv("HOLDFAST_KEEP")
    if path then files.write(path, table.concat(parts, "\n")) end
    assert.equal(read(kept .. "/transcript.txt"), table.concat(parts, "\n"))
  end)

  -- A version may keep the counter for longer than the token TTL of 600 s.
  local function without_spare(text)
    return (text:gsub("(redisson_lock_token:[^\n]*, )(%d+) s", function(before, seconds)
      return before .. math.min(tonumber(seconds), 600) .. " s"
    end))
  end

  for _, turn in ipairs(TURNS) do
    it("produces the kept transcript " .. turn[1], function()
      local expected = without_spare(read(kept .. "/transcript.txt"))
      local parts = transcript(server, turn[2])
      for i, part in ipairs(parts) do
        part = without_spare(part)
        parts[i] = part
        local title = scenarios.list[i][1]
        local from = assert(expected:find(title .. "\n", 1, true), "not kept: " .. title)
        assert.equal(expected:sub(from, from + #part - 1), part)
      end
      assert.equal(#expected, #table.concat(parts, "\n"))
    end)
  end
end)

describe("clients of an earlier protocol and of today's", function()
  local server, others, client, lock, old

  before_each(function()
    server = redis.start()
    others = crowd.new(server, KEY)
    client = holdfast.new { url = server:url(), grant_lease = GRANT }
    lock = client:lock(KEY, { lease = LEASE })
    old = protocol.new(server:url(), {
      programs = kept_programs(), grant_lease = GRANT * 1000, lease = LEASE * 1000,
    })
  end)

  after_each(function()
    client:close()
    old:close()
    others:clear()
  end)

  -- k1 is a client of the kept protocol, t1 one of today's
  local function options_of(name, more)
    local options = { kind = "holdfast", grant_lease = GRANT, lease = LEASE, wait = 30 }
    if name:find("^k") then
      options.kind, options.module, options.programs = "protocol", kept_client, kept_programs()
    end
    for option, value in pairs(more or {}) do options[option] = value end
    return options
  end

  local function line_up(names, more)
    for _, name in ipairs(names) do others:line_up({ name }, options_of(name, more)) end
  end

  local function assert_turns(turns)
    local history = others:assert_turns(turns)
    crowd.assert_rising(history.tokens)
    return history
  end

  it("exclude each other and lose no update", function()
    for i = 1, 3 do
      others:add("k" .. i, options_of("k", { turns = 30 }))
      others:add("t" .. i, options_of("t", { turns = 30 }))
    end
    assert_turns(180)
  end)

  for _, names in ipairs { { "k1", "t1", "t2", "k2", "k3", "t3" },
      { "t1", "k1", "k2", "t2", "t3", "k3" } } do
    it("are served in order of arrival: " .. table.concat(names, " "), function()
      local held = names[1] == "k1" and assert(old:acquire(KEY)) or assert(lock:acquire(0))
      line_up(names)
      assert(held:release())
      assert.same(names, assert_turns(6).names)
    end)
  end

  it("skip each other's dead waiters", function()
    assert(lock:acquire(0))
    line_up { "k1", "t1", "k2" }
    others.workers[1]:stop()
    assert(lock:release())
    table.remove(others.workers, 1)
    assert.same({ "t1", "k2" }, assert_turns(2).names)
    local held = assert(old:acquire(KEY))
    others.workers = {}
    line_up { "t3", "k3" }
    others.workers[1]:stop()
    assert.is_true(held:release())
    assert.truthy(process.wait_until(function() return others:turns_of("k3") == 1 end, 20))
    others.workers = { others.workers[2] }
    assert.is_nil(others:finish(20))
  end)

  local function call_of(directory, name, ...)
    local words = { "EVAL", program(directory, name), 4, KEY, "redisson_lock_token:{" .. KEY .. "}", QUEUE,
      "redisson_lock__channel:{" .. KEY .. "}", ... }
    return server:cli(words)
  end

  -- What the small client does not know is called directly, with the kept programs.
  local function call(name, ...) return call_of(kept_programs(), name, ...) end

  local function waiter(kind, nth)
    local silent = crowd.silent_client(server, nth or 7)
    return {
      owner = silent.uuid .. ":1", member = ("1%s%s:1:0"):format(kind, silent.uuid),
      receive = function() return assert(silent.connection:receive(2))[3] end,
      close = function() silent.connection:close() end,
    }
  end

  it("are queued in order of arrival, whether or not the kept programs' queue scores are times", function()
    assert(lock:acquire(0))
    local waiters, places = {}, {}
    for i, directory in ipairs { today, kept_programs(), today, kept_programs(), today } do
      local each = waiter("l", i)
      local time = server:cli("TIME")
      local reply = call_of(directory, "acquire", each.owner, 500, 0, 0, 20000, 0, each.member)
      waiters[i], places[i] = each, tonumber(reply[5])
      if directory == today then
        assert.is_true(places[i] >= tonumber(("%d%06d"):format(time[1], time[2])))
      end
    end
    for i = 2, 5 do assert.is_true(places[i] > places[i - 1]) end
    assert(lock:release())
    assert.matches("^1 grant l 1 ", waiters[1].receive())
    for i = 1, 4 do
      local release = i % 2 == 0 and today or kept_programs()
      assert.equal(1, call_of(release, "release", waiters[i].owner, 500, 0, 0, ""))
      assert.matches(("^1 grant l 1 %.0f "):format(places[i + 1]), waiters[i + 1].receive())
    end
    assert.equal(1, call("release", waiters[5].owner, 500, 0, 0, ""))
    for _, each in ipairs(waiters) do each.close() end
  end)

  -- A grant's reply is {1, token, 0} or, by newer programs, the token alone.
  local function is_grant(reply) return type(reply) == "number" or reply[1] == 1 end

  it("understand each other's record of how long a queue has existed", function()
    for _, directory in ipairs { today, kept_programs() } do
      local one, two = waiter("l", 1), waiter("l", 2)
      assert.is_true(is_grant(call("acquire", one.owner, 500, 0, 0, 20000, 0, "")))
      local ms = server:cli("TIME")[1] * 1000
      server:cli("ZADD", QUEUE, ("%.0f"):format(8000 - ms), "1f 0 4 0 0")
      assert.equal(0, call("acquire", two.owner, 500, 0, 0, 20000, 0, two.member)[1])
      assert.equal(1, call_of(directory, "release", one.owner, 500, 0, 0, ""))
      assert.equal("1 turn 1 20", two.receive())
      assert.equal("1f 0 5 0 0", server:cli("ZRANGE", QUEUE, 0, 0)[1])
      server:cli("DEL", KEY, QUEUE)
      one.close()
      two.close()
    end
  end)

  for _, kind in ipairs { "", "mutex_" } do
    it("draw rising tokens from one counter, of which each keeps the format: " .. kind .. "acquire", function()
      local counter, last = "redisson_lock_token:{" .. KEY .. "}", 0
      for i = 1, 12 do
        local directory = i % 3 == 0 and kept_programs() or today
        local owner = ("11111111-0000-8000-8000-%012d:1"):format(i)
        local brief = directory == today and i % 2 == 0 -- the kept programs may not know that
        local more = brief and { 20000, 600000 } or { 500, 0, 0, 20000, 600000, "" }
        local reply = call_of(directory, kind .. "acquire", owner, unpack(more))
        assert.is_true(directory ~= today or type(reply) == "number")
        local token = type(reply) == "number" and reply or reply[2]
        assert.is_true(token > last and token % 8 == 0)
        assert.equal(("%.0f"):format(token), server:cli("GET", counter))
        local left = server:cli("PTTL", counter)
        assert.is_true(left >= 600000 and left <= 600000 * 33 / 32, left)
        directory = i % 4 < 2 and today or kept_programs()
        assert.equal(1, call_of(directory, kind .. "release", owner, 500, 0, 0, ""))
        last = token
      end
    end)
  end

  it("grant a mutex to each other's waiters", function()
    local mutex, kept_one = client:mutex(KEY, { lease = LEASE, fencing = false }), waiter "m"
    assert(mutex:acquire(0))
    assert.equal(0, call("mutex_acquire", kept_one.owner, 500, 0, 0, 20000, 0, kept_one.member)[1])
    assert(mutex:release())
    assert.matches("^1 grant m 1 %d+ 0 %d+ " .. KEY .. "$", kept_one.receive())
    assert.equal(1, server:cli("EVAL", program(kept_programs(), "mutex_extend"), 2, KEY, QUEUE,
      kept_one.owner, 20000, "",
      kept_one.member))
    local next_one = process.lua {
      code = ([[local client = require("holdfast").new(%q)
        print(client:mutex(%q, { lease = 20 }):acquire(10) and "in")
        client:close()]]):format(server:url(), KEY),
    }
    process.eventually(function() return server:cli("ZCOUNT", QUEUE, "(0", "+inf") == 1 end, 20)
    assert.equal(1, call("mutex_release", kept_one.owner, 500, 0, 0, ""))
    assert.truthy(next_one:wait_output("in\n", 20), next_one:output())
    assert.same({ "exit", 0 }, { next_one:wait(20) })
    kept_one.close()
  end)

  it("read each other's idempotency records", function()
    local record = "RD7;S2:ab{S1:kT}"
    local kept_one, runs = waiter "g", 0
    local function run() runs = runs + 1 return 7, "ab", { k = true } end
    assert.equal(1, call("begin", kept_one.owner, 500, 0, 0, 20000, 0, "", "print")[1])
    local options = { replay = true, fingerprint = "print", expire = 20 }
    assert.equal("duplicate", select(3, client:idempotent(KEY, options, run)))
    assert.equal(1, call("complete", kept_one.owner, 500, 20000, "print", record))
    assert.same({ 7, "ab", { k = true } }, { client:idempotent(KEY, options, run) })
    assert.equal("mismatch", select(3, client:idempotent(KEY, { fingerprint = "other" }, run)))
    server:cli("DEL", KEY)
    assert.same({ 7, "ab", { k = true } }, { client:idempotent(KEY, options, run) })
    assert.equal(1, runs)
    assert.same({ 3, record }, call("begin", kept_one.owner, 500, 0, 0, 20000, 0, "", "print"))
    server:cli("DEL", KEY)
    kept_one.close()
  end)

  it("exclude each other from multi-locks", function()
    local both, kept_one = client:multi_lock({ KEY, "second" }, { lease = LEASE, fencing = false }),
      waiter "l"
    assert(both:acquire(0))
    assert.equal(0, call("acquire", kept_one.owner, 500, 0, 0, 20000, 0, kept_one.member)[1])
    assert(both:release())
    assert.matches("^1 grant l 1 %d+ 0 %d+ " .. KEY .. "$", kept_one.receive())
    assert.equal("busy", select(3, both:acquire(0)))
    assert.equal(1, call("release", kept_one.owner, 500, 0, 0, ""))
    assert(both:acquire(0)) assert(both:release())
    kept_one.close()
  end)
end)
