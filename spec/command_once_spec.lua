-- holdfast run --once-per: one run for each fire of a schedule that many hosts share.

local command = require "spec.support.command"
local process = require "spec.support.process"
local world = require("spec.support.world").new()

local PATIENCE = 20

local function run(...) return command.run(world.server, { "run", ... }) end

describe("holdfast run --once-per", function()
  before_each(world.open)
  after_each(function()
    world.cli("FLUSHALL")
    world.close()
  end)

  it("runs once per period; a duplicate exits with 79, or the code of -E or --duplicate-exit", function()
    assert.same({ 0, "ran\n" }, { run("--once-per", "1h", "k", "--", "echo", "ran") })
    local code, output = run("--once-per", "1h", "k", "--", "echo", "ran")
    assert.equal(79, code)
    assert.matches('^holdfast run: "k" has run for this time, on [^ ]+ %(pid %d+%), %d+%.%d s ago\n$', output)
    assert.same({ 0, "" }, { run("-E", "0", "--once-per", "1h", "k", "--", "echo", "ran") })
    assert.equal(7, (run("--duplicate-exit", "7", "--once-per", "1h", "k", "--", "echo", "ran")))
  end)

  it("prints with --json which host and process has run the job", function()
    run("--once-per", "1h", "--name", "nightly", "k", "--", "true")
    local code, output = run("--once-per", "1h", "--json", "k", "--", "true")
    assert.equal(79, code)
    assert.matches('"code":"duplicate","exit":79,"host":"[^"]+","pid":%d+,"name":"nightly"}\n$', output)
  end)

  it("reruns a job that failed in the same period only with --retry", function()
    assert.equal(3, (run("--once-per", "1h", "k", "-c", "exit 3")))
    local code, output = run("--once-per", "1h", "k", "--", "echo", "ran")
    assert.equal(79, code)
    assert.matches('"k" has failed for this time', output)
    assert.same({ 0, "ran\n" }, { run("--once-per", "1h", "--retry", "k", "--", "echo", "ran") })
    assert.equal(79, (run("--once-per", "1h", "--retry", "k", "--", "echo", "ran")))
  end)

  it("leaves the scheduled run to other hosts if its command cannot be started", function()
    assert.equal(127, (run("--once-per", "1h", "k", "--", "/nonexistent/program")))
    assert.same({ 0, "ran\n" }, { run("--once-per", "1h", "k", "--", "echo", "ran") })
  end)

  it("holds the lock while its job runs, and turns away duplicates at once", function()
    local child = command.start(world.server, { "run", "--once-per", "1h", "k", "-c", "echo runs; read line" })
    world.children[#world.children + 1] = child
    local function is_held() return world.cli("EXISTS", "k") == 1 end
    assert(process.wait_until(is_held, PATIENCE), child:output())
    child:stop()
    assert.equal(79, (run("--once-per", "1h", "k", "--", "echo", "ran")))
  end)

  it("with --retry reruns the job of a crashed run at once, before its lease ends", function()
    local function job(text)
      local child = command.start(world.server, { "run", "--once-per", "1h", "--retry", "k", "-c", text })
      world.children[#world.children + 1] = child
      return child
    end
    local first = job "echo first; while :; do sleep 0.05; done"
    assert(first:wait_output("first", PATIENCE), first:output())
    local second = job "echo second"
    local function is_waiting() return world.cli("EXISTS", "holdfast_queue:{k}") == 1 end
    assert(process.wait_until(is_waiting, PATIENCE), second:output())
    first:kill "KILL"
    first:wait(PATIENCE)
    assert.same({ "exit", 0 }, { second:wait(PATIENCE) }, second:output())
    assert.equal("second\n", second:output())
    assert.equal(79, (run("--once-per", "1h", "--retry", "k", "--", "echo", "third")))
  end)

  it("records success before it waits out --min-hold, so that a crash during that wait causes no retry", function()
    local options = { "run", "--once-per", "1h", "--retry", "--min-hold", "60", "k", "--", "true" }
    local child = command.start(world.server, options)
    world.children[#world.children + 1] = child
    local function is_done()
      return tostring(world.cli("GET", "holdfast_once:k")):find("^%d+ done ") ~= nil
    end
    assert(process.wait_until(is_done, PATIENCE), child:output())
    assert.equal(1, world.cli("EXISTS", "k"))
    child:kill "KILL"
    child:wait(PATIENCE)
    assert.equal(79, (run("--once-per", "1h", "--retry", "k", "--", "echo", "again")))
  end)

  it("leaves the scheduled run to other hosts if a signal ends its wait", function()
    local lock = world.client():lock "k"
    assert(lock:acquire(0))
    local child = command.start(world.server, { "run", "--once-per", "1h", "k", "--", "true" })
    world.children[#world.children + 1] = child
    local function is_waiting() return world.cli("EXISTS", "holdfast_queue:{k}") == 1 end
    assert(process.wait_until(is_waiting, PATIENCE), child:output())
    assert.equal(79, (run("--once-per", "1h", "k", "--", "true")))
    child:kill "TERM"
    assert.same({ "exit", 143 }, { child:wait(PATIENCE) })
    assert(lock:release())
    assert.same({ 0, "ran\n" }, { run("--once-per", "1h", "k", "--", "echo", "ran") })
  end)

  it("leaves a record that show prints and break deletes", function()
    run("--once-per", "1h", "k", "--", "true")
    local _, output = command.run(world.server, { "show", "k" })
    assert.matches("\nrun      done on [^ ]+ pid %d+, began %d+%.%d s ago\n", output)
    _, output = command.run(world.server, { "show", "--json", "k" })
    assert.matches('"run":{"state":"done","host":"[^"]+","pid":%d+,"age":[%d.e-]+}', output)
    assert.same({ 0, "k: may run again\n" }, { command.run(world.server, { "break", "--yes", "k" }) })
    assert.same({ 0, "ran\n" }, { run("--once-per", "1h", "k", "--", "echo", "ran") })
  end)

  it("rejects options that cannot be combined with it", function()
    for words, message in pairs {
      ["--retry k"] = "--retry needs --once-per",
      ["--once-per 1h a b"] = "--once-per takes one KEY",
      ["--once-per 1h -s k"] = "--once-per does not work with --shared",
      ["--once-per 1h -x k"] = "--once-per does not work with --exclusive",
      ["--once-per 1h --permits 2 k"] = "--once-per does not work with --permits",
      ["--once-per 1h --one-by-one a:b"] = "--once-per does not work with --one-by-one",
      ["--once-per 1h --idempotent 1h k"] = "--once-per does not work with --idempotent",
      ["--once-per 0.01 k"] = "--once-per must be a duration from 0.1 s to 1e9 s",
      ["--once-per 1h --servers redis://a,redis://b,redis://c k"] = "--once-per needs a single server, not --servers",
    } do
      local list = {}
      for word in words:gmatch "%S+" do list[#list + 1] = word end
      list[#list + 1], list[#list + 2] = "--", "true"
      local code, output = command.run(world.server, { "run", (table.unpack or unpack)(list) })
      assert.equal(64, code, words)
      assert.truthy(output:find(message, 1, true), output)
    end
  end)
end)
