-- Callers that wait for each other: the keys on the servers show them, and deadlock_check breaks
-- the cycle.

local cluster = require "spec.support.cluster"
local command = require "spec.support.command"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local shell = require "holdfast.command.shell"
local sys = require "spec.support.sys"

local PATIENCE = 20

-- Acquires its own lock, and waits for the other one as soon as the file `go` exists.
local PARTY = [[
  local holdfast = require "holdfast"
  local urls, go, own, other, check = arg[1], arg[2], arg[3], arg[4], tonumber(arg[5])
  local lease = tonumber(arg[6])
  local servers = {}
  for url in urls:gmatch("%S+") do servers[#servers + 1] = url end
  local given = { url = urls, name = "party-" .. (own:gsub("%s", "_")) }
  if #servers > 1 then given = { servers = servers, mode = "quorum", name = given.name } end
  local client = holdfast.new(given)
  local opts = check > 0 and { deadlock_check = check } or nil
  local held = assert(client:lock(own, { lease = lease, watchdog = true }):acquire(10))
  print("holds " .. own)
  io.stdout:flush()
  repeat local file = io.open(go) until file
  local got, message, code = client:lock(other, opts):acquire(60)
  print(got and "got it" or "ended " .. code .. ": " .. message)
  io.stdout:flush()
  if got then got:release() end
  held:release()
  client:close()
]]

-- Returns how many thousand Lua instructions the function takes.
local function steps(fn)
  local count, hook, mask, every = 0, debug.gethook()
  if jit then jit.off() end -- compiled code calls no hook
  debug.sethook(function() count = count + 1 end, "", 1000)
  fn()
  debug.sethook(hook, mask, every)
  if jit then jit.on() end
  return count
end

-- Makes `count` waits: each holds a lock of its own, and waits for the lock of wait `next_of(i)`.
local function chain(count, next_of)
  local waits, held_by = {}, {}
  for i = 1, count do
    waits["o" .. i] = { holds = { "o" .. i } }
    held_by[waits["o" .. i]] = { "o" .. (next_of(i) or 0) }
  end
  return waits, function(wait) return held_by[wait] end
end

local function yes() return true end

describe("the search for cycles", function()
  local cycles = require "holdfast.cycles"

  -- → the steps for `most` waits divided by the steps for a tenth of them, the sizes of the cycles
  local function growth(most, next_of, goes_on)
    local sizes = {}
    local function search(count)
      local waits, holders_of = chain(count, function(i) return next_of(i, count) end)
      return steps(function()
        sizes = {}
        for i, cycle in ipairs(cycles.find(waits, holders_of, goes_on or yes)) do
          sizes[i] = #cycle
        end
      end)
    end
    local few = search(math.floor(most / 10))
    return search(most) / few, sizes
  end

  for name, case in pairs {
    ["a chain"] = { 20000, {}, function(i, count) return i < count and i + 1 or nil end },
    ["a cycle"] = { 4000, { 4000 }, function(i, count) return i % count + 1 end },
    ["a chain into a cycle of two"] = {
      4000, { 2 }, function(i, count) return i < count and i + 1 or count - 1 end,
    },
    ["many waiters for either of two holders"] = {
      4000, { 2 }, function(i) return i == 1 and 2 or 1 end,
    },
    ["a cycle of waits that have ended"] = {
      4000, {}, function(i, count) return i % count + 1 end, function() return false end,
    },
  } do
    it("takes ten times the steps for ten times as many waiters: " .. name, function()
      local times, sizes = growth(case[1], case[3], case[4])
      assert.same(case[2], sizes)
      assert.is_true(times < 12, times .. " times the steps")
    end)
  end

  it("takes ten times the steps for ten times as many waiters and permits", function()
    local function search(count)
      local waits, holders = {}, { free = 0 }
      for i = 1, count do
        waits["o" .. i], holders[i] = { holds = { "o" .. i }, count = 1 }, "o" .. i
      end
      local found
      return steps(function()
        found = cycles.find(waits, function() return holders end, yes)
      end), found
    end
    local few = search(200)
    local many, found = search(2000)
    assert.is_true(#found > 0)
    assert.is_true(many < 12 * few, many .. " steps, " .. few)
  end)

  it("treats free permits and permits of holders outside of the search as ones that may be released", function()
    local holders = { "a", "a", "b", false, free = 1 }
    local function size(wants_a, wants_b)
      local waits = {
        a = { holds = { "a" }, count = wants_a }, b = { holds = { "b" }, count = wants_b },
      }
      local cycle = cycles.find(waits, function() return holders end, yes)[1]
      return cycle and #cycle or 0
    end
    assert.equal(0, size(2, 2)) -- one is free, and one is a stranger's hold
    assert.equal(0, size(2, 4)) -- b gets what it wants when a has ended
    assert.equal(1, size(2, 5)) -- b would need what it holds itself
    assert.equal(2, size(3, 3))
  end)
end)

local function name_of(key) return "party-" .. (key:gsub("%s", "_")) end

local KEYS = { "orders", " stock", "{mail}" }

describe("deadlocks", function()
  local parties, go, host

  setup(function() host = require("holdfast.process").host() end)
  before_each(function() parties, go = {}, process.directory() .. "/go" end)
  local function stop_parties() for _, party in ipairs(parties) do party:stop() end end

  after_each(stop_parties)

  local function let_go(i) assert(io.open(go .. i, "w")):close() end

  -- Starts parties that hold a key each, and wait for the next party's key when told to.
  local function prepare(urls, keys, check, lease)
    for i, key in ipairs(keys) do
      parties[i] = process.lua {
        code = PARTY,
        args = { urls, go .. i, key, keys[i % #keys + 1], check and check[i] or 0, lease or 30 },
      }
      assert(parties[i]:wait_output("holds", PATIENCE), parties[i]:output())
    end
  end

  local function plant(urls, keys, check)
    prepare(urls, keys, check)
    for i = 1, #keys do let_go(i) end
  end

  -- → the first cycle that is found
  local function found(client)
    return assert(process.wait_until(function()
      return assert(client:deadlocks()).cycles[1]
    end, PATIENCE), "no deadlock found")
  end

  local function check_cycle(cycle, keys)
    local order, next_of = {}, {}
    for i, key in ipairs(keys) do next_of[key] = keys[i % #keys + 1] end
    assert.equal(#keys, #cycle)
    for i, wait in ipairs(cycle) do
      local before = cycle[(i - 2) % #cycle + 1]
      assert.equal(next_of[before.key], wait.key)
      assert.equal(host, wait.host)
      local blocks = cycle[i % #cycle + 1]
      assert.same({ name_of(wait.key), host, blocks.pid },
        { wait.holder_name, wait.holder_host, wait.holder_pid })
      assert.equal(blocks.owner:sub(1, 36), wait.holder:sub(1, 36))
      order[wait.pid] = true
    end
    for _, party in ipairs(parties) do assert.is_true(order[party.pid]) end
  end

  local function outputs()
    local list = {}
    for _, party in ipairs(parties) do list[#list + 1] = party:output() end
    return table.concat(list, "\n")
  end

  local function all_end()
    for _, party in ipairs(parties) do assert.equal("exit", party:wait(PATIENCE), outputs()) end
  end

  -- Asserts that all parties end, one of them because of the deadlock.
  local function check_dissolved()
    all_end()
    local text = outputs()
    assert.equal(1, select(2, text:gsub("ended deadlock: ", "")), text)
    assert.equal(2, select(2, text:gsub("got it", "")), text)
    assert.matches('the waits form a cycle: "[^"]+", held by %S+, which waits for "', text)
  end

  describe("on one server", function()
    local server, client

    setup(function() server = redis.start() end)
    teardown(function() server:stop() end)
    before_each(function()
      server:cli("FLUSHALL")
      client = holdfast.new(server:url())
    end)
    after_each(function()
      stop_parties()
      client:close()
      server:cli("FLUSHALL")
    end)

    local function wait_published(count)
      assert(process.wait_until(function()
        return #server:cli("KEYS", "holdfast_wait:*") == count
      end, PATIENCE))
    end

    it("are reported with key, owner, host, pid and name of each caller", function()
      plant(server:url(), KEYS)
      check_cycle(found(client), KEYS)
    end)

    it("are not reported between separate callers that share clients", function()
      local other = holdfast.new(server:url())
      local one, two = client:lock("a"), other:lock("b")
      assert(one:acquire()) assert(two:acquire())
      local function wait(key)
        return process.lua { code = [[
          local client = require("holdfast").new(arg[1])
          client:lock(arg[2]):acquire(60)
        ]], args = { server:url(), key } }
      end
      parties[1], parties[2] = wait("b"), wait("a")
      local result
      assert.truthy(process.wait_until(function()
        result = assert(client:deadlocks())
        return #result.waits == 2
      end, PATIENCE))
      assert.same({ {}, "a", one:owner() },
        { result.cycles, result.waits[1].key, result.waits[1].holder })
      other:close()
    end)

    it("with deadlock_check end only the youngest waiter's wait, and leave no key behind", function()
      plant(server:url(), KEYS, { 1, 1, 1 })
      check_dissolved()
      assert.truthy(process.wait_until(function() -- long before the waits would end by themselves
        return #server:cli("KEYS", "holdfast_wait:*") == 0
      end, 8))
    end)

    it("are not reported if one of the callers was killed", function()
      prepare(server:url(), { "one", "two" }, { 0, 0.5 }, 6)
      let_go(1)
      wait_published(1)
      parties[1]:stop()
      assert(process.wait_until(function()
        return #server:cli("PUBSUB", "CHANNELS", "holdfast_grant:*") == 0
      end, PATIENCE))
      let_go(2)
      wait_published(2)
      assert.same({}, assert(client:deadlocks()).cycles)
      assert.equal("exit", parties[2]:wait(PATIENCE))
      assert.matches("got it", parties[2]:output())
    end)

    it("list the caller that has waited longest first", function()
      prepare(server:url(), { "one", "two", "three" })
      for i, party in ipairs { 2, 3, 1 } do
        let_go(party)
        wait_published(i)
      end
      local cycle = found(client)
      assert.same({ parties[2].pid, parties[3].pid, parties[1].pid },
        { cycle[1].pid, cycle[2].pid, cycle[3].pid })
      assert.is_true(cycle[1].since < cycle[3].since)
    end)

    -- The client could not publish that the wait is over.
    it("are not reported because of a wait that has ended while another caller of its client still waits", function()
      prepare(server:url(), { "two", "one" }, { 0.5, 0 })
      parties[2]:stop()
      server:cli("DEL", "one")
      parties[2] = process.lua { code = [[
        local client = require("holdfast").new(arg[1])
        coroutine.wrap(function() client:lock("one"):acquire() end)()
        print("holds one")
        io.stdout:flush()
        client:lock("two"):acquire(60)
      ]], args = { server:url() } }
      local queue
      assert(process.wait_until(function()
        queue = server:cli("ZRANGE", "holdfast_queue:{two}", 0, -1)
        return #queue == 1
      end, PATIENCE))
      local owner = server:cli("HKEYS", "one")[1]
      local waiter = queue[1]:match("^1l(.*:%d+):%d+$")
      local function publish(name)
        server:cli("SET", "holdfast_wait:" .. owner, "1 " .. name .. " l two", "PX", 60000)
      end
      publish(waiter .. "0")
      let_go(1)
      wait_published(2)
      assert.is_nil((parties[1]:wait(2)), parties[1]:output())
      assert.same({}, assert(client:deadlocks()).cycles)
      publish(waiter)
      assert.equal(2, #found(client))
    end)

    local CLIENT = "b983c153-7421-469a-addb-44fb92259a1b"

    -- Writes the keys of a client whose callers hold k1 to kN and wait: each for the next key, or
    -- all for k1, whose holder waits for k2.
    local function forge(count, all_for_one)
      server:cli("EVAL", [[
        for i = 1, tonumber(ARGV[1]) do
          local owner, waiter = ARGV[2] .. ":" .. i, ARGV[2] .. ":" .. 1000000 + i
          local wanted = "k" .. (ARGV[3] == "all for one" and (i == 1 and 2 or 1) or i + 1)
          redis.call("HSET", "k" .. i, owner, 1)
          redis.call("PEXPIRE", "k" .. i, 600000)
          redis.call("SET", "holdfast_wait:" .. owner, "1 " .. waiter .. " l " .. wanted, "PX", 600000)
          redis.call("ZADD", "holdfast_queue:{" .. wanted .. "}", i, "1l" .. waiter .. ":1")
        end
      ]], "0", tostring(count), CLIENT, all_for_one and "all for one" or "a chain")
    end

    it("are found by reading each queue once, however many callers wait", function()
      forge(600, true)
      parties[1] = process.start { "redis-cli", "-s", server.path, "SUBSCRIBE",
        "holdfast_grant:" .. CLIENT }
      assert(parties[1]:wait_output("subscribe", PATIENCE), parties[1]:output())
      server:cli("CONFIG", "RESETSTAT")
      local result = assert(client:deadlocks())
      assert.same({ 1, 2 }, { #result.cycles, #result.cycles[1] })
      local reads = tonumber(server:cli("INFO", "commandstats"):match("cmdstat_zrange:calls=(%d+)"))
      assert.is_true(reads < 10, reads .. " reads of queues")
    end)

    it("are not reported among ordinary waits, which the command lists with --all", function()
      local holder = command.start(server, { "hold", "--name", "first", "k" })
      local permit = assert(client:semaphore("pool", { permits = 1 }):acquire())
      assert(holder:wait_output("^k %d+\n", PATIENCE))
      local one = command.start(server, { "run", "--name", "second", "k", "--", "true" })
      local other = command.start(server, { "run", "--permits", "1", "pool", "--", "true" })
      local code, output
      local lock_line = ('[^\n]+ pid %d second %%([%%x-]+:%%d+%%) waits for "k", held by %%S+ pid %d first %%([%%x-]+:1%%)\n')
        :format(one.pid, holder.pid)
      local permit_line = ('[^\n]+ pid %d %%([%%x-]+:%%d+%%) waits for "pool", whose permits are taken\n')
        :format(other.pid)
      assert(process.wait_until(function()
        code, output = command.run(server, { "deadlocks", "-a" })
        return output:find(lock_line) and output:find(permit_line)
      end, PATIENCE), output)
      assert.equal(0, code)
      assert.same({ 0, "" }, { command.run(server, { "deadlocks" }) })
      code, output = command.run(server, { "deadlocks", "-a", "--json" })
      assert.equal(0, code)
      assert.matches(('{"key":"k","kind":"[^"]+","owner":"[^"]+","host":"[^"]+","pid":%d,"name":"second","holder":"[^"]+",'
        .. '"holder_host":"[^"]+","holder_pid":%d,"holder_name":"first"}\n'):format(one.pid, holder.pid), output)
      assert.same({ 0, "" }, { command.run(server, { "deadlocks", "--json" }) })
      for _, child in ipairs { one, other, holder } do
        child:kill("TERM")
        assert(child:wait(PATIENCE))
      end
      assert(permit:release())
    end)

    it("make `holdfast deadlocks` print the cycle and exit with 1", function()
      assert.equal(0, (command.run(server, { "deadlocks" })))
      plant(server:url(), KEYS)
      found(client)
      local code, output = command.run(server, { "deadlocks" })
      assert.equal(1, code)
      assert.matches("^deadlock 1, a cycle of length 3\n", output)
      for _, key in ipairs(KEYS) do
        assert.truthy(output:find(('waits for "%s", held by '):format(key), 1, true), output)
        assert.truthy(output:find(name_of(key) .. " (", 1, true), output)
      end
      local advice = output:match("\n  To resolve it, end one of these processes: ([^\n]+)\n")
      for _, party in ipairs(parties) do
        assert.truthy(advice:find(("%s pid %d "):format(host, party.pid), 1, true), output)
      end
      local key, holder = output:match('waits for "([^"]+)", held by (.-) %(')
      assert.truthy(output:find(('\n  or break one of the locks: holdfast break %s\n  The next in line then gets "%s". '
        .. "%s is not stopped: it runs on"):format(shell.quote(key), key, holder), 1, true), output)
      code, output = command.run(server, { "deadlocks", "--json", "--all" })
      assert.equal(1, code)
      assert.matches('^{"deadlock":%[{"key":', output)
      assert.equal(4, select(2, output:gsub("\n", "")))
    end)
  end)

  describe("in a cluster", function()
    local nodes, client

    setup(function() nodes = cluster.start { masters = 3, replicas = 0 } end)
    teardown(function() nodes:stop() end)
    before_each(function()
      client = holdfast.new(nodes:url())
      assert(client:ping())
    end)
    after_each(function() client:close() end)

    local function uproot()
      stop_parties()
      for i = 1, #KEYS do os.remove(go .. i) end
      for _, node in ipairs(nodes:masters()) do node:cli("FLUSHALL") end
    end

    local function run_command()
      return command.run({ url = function() return nodes:url() end }, { "deadlocks" })
    end

    -- → the seconds since the last caller could begin to wait, what the command prints
    local function named_after()
      plant(nodes:url(), KEYS)
      local from = sys.now()
      local code, output
      assert(process.wait_until(function()
        code, output = run_command()
        return code == 1
      end, PATIENCE), output)
      return sys.now() - from, output
    end

    -- A busy machine may need several tries; if all are too slow, there is a reason.
    it("are printed by `holdfast deadlocks` within a second", function()
      local best = math.huge
      for _ = 1, 5 do
        local seconds, output = named_after()
        best = math.min(best, seconds)
        assert.matches("^deadlock 1, a cycle of length 3\n", output)
        for _, party in ipairs(parties) do
          assert.truthy(output:find(("%s pid %d "):format(host, party.pid), 1, true), output)
        end
        uproot()
        if best < 1 then break end
      end
      assert.is_true(best < 1, best .. " s")
    end)

    it("are reported, and end one wait with deadlock_check", function()
      plant(nodes:url(), KEYS)
      check_cycle(found(client), KEYS)
      uproot()
      assert.equal(0, (run_command()))
      plant(nodes:url(), KEYS, { 1, 1, 1 })
      check_dissolved()
    end)
  end)

  describe("in a quorum", function()
    local servers, urls, client

    before_each(function()
      servers, urls = redis.several(3)
      client = holdfast.new { servers = urls, mode = "quorum" }
    end)

    after_each(function()
      stop_parties()
      client:close()
      for _, server in ipairs(servers) do
        if server:is_running() then
          assert.truthy(process.wait_until(function()
            return #server:cli("CLIENT", "LIST", "TYPE", "NORMAL"):gsub("[^\n]", "") <= 1
          end, PATIENCE))
        end
        server:stop()
      end
    end)

    local function plant_all(check) plant(table.concat(urls, " "), KEYS, check) end

    it("are reported while a minority of servers is down; with a majority down the search fails", function()
      plant_all()
      found(client)
      servers[2]:kill()
      check_cycle(found(client), KEYS)
      servers[3]:kill()
      assert.equal("unreachable", select(3, client:deadlocks()))
    end)

    for how, signal in pairs { ["is down"] = "KILL", hangs = "STOP" } do
      it("end one wait with deadlock_check while a server " .. how, function()
        if signal == "KILL" then servers[2]:kill() end
        prepare(table.concat(urls, " "), KEYS, { 1, 1, 1 })
        if signal == "STOP" then servers[2]:kill(signal) end
        for i = 1, #KEYS do let_go(i) end
        all_end()
        if signal == "STOP" then servers[2]:kill("CONT") end
        check_dissolved()
      end)
    end
  end)
end)
