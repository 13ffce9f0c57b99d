-- After a crash of holdfast run or lead, a waiter on the same host gets the lock only when the
-- whole job is proved dead.

local adopted = require "spec.support.adopted"
local command = require "spec.support.command"
local process = require "spec.support.process"

local LOOKS = "0.2" -- seconds; in this time a waiter rechecks several times
local SOON = "20" -- seconds; the lease is 30

describe("a run after a crash of the previous run", function()
  local world = require("spec.support.world").new()
  local survivor

  before_each(function()
    world.open()
    survivor = nil
  end)

  after_each(function()
    if survivor then process.signal(survivor, "KILL") end
    world.cli("DEL", "k", "s_1")
    world.close()
  end)

  -- Starts the command, and waits until the job prints "holds". → what adopts it, the command's id
  local function start(words)
    local child, pid = adopted.start(world.server, words)
    world.children[#world.children + 1] = child
    assert(child:wait_output("holds"), child:output())
    survivor = tonumber(child:output():match("survivor (%d+)"))
    return child, pid
  end

  local function run(job, option)
    return start { "run", "k", option or "-v", "--", "bash", "-c", job }
  end

  -- Kills the command and the first process of its job, but no other process.
  local function crash(child, pid)
    process.signal(pid, "KILL")
    assert(process.wait_until(function() return not process.signal(pid, 0) end), child:output())
  end

  local function wait_for(seconds, ...)
    return command.run(world.server, { "run", "-v", "-w", seconds, ... })
  end

  local function assert_freed(...)
    local code, output = wait_for(SOON, ...)
    assert.equal(0, code, output)
    assert.matches("holdfast run: released \".-\": its holder has crashed\n.*acquired", output)
  end

  local function assert_kept(...)
    local code, output = wait_for(LOOKS, ...)
    assert.equal(1, code, output)
    assert.not_matches("has crashed", output)
  end

  it("acquires the lock at once if the crashed run's job has ended too", function()
    crash(run "echo holds; exec sleep 60")
    assert_freed("k", "--", "true")
  end)

  it("acquires the lock of --one-by-one and the record of --idempotent at once if the job has ended", function()
    local child, pid = start { "run", "--one-by-one", "s:1", "--idempotent", "1h", "-c", "echo holds; exec sleep 60" }
    crash(child, pid)
    local code, output = wait_for(SOON, "--one-by-one", "s:1", "--idempotent", "0.1", "--", "true")
    assert.equal(0, code, output)
    assert.equal(2, select(2, output:gsub("its holder has crashed", "")), output)
  end)

  it("acquires the lock at once from a crashed leader whose job has ended", function()
    local child, pid = start { "lead", "k", "-c", "echo holds; exec sleep 60" }
    crash(child, pid)
    assert_freed("k", "--", "true")
  end)

  for _, words in ipairs { { "-n" }, { "-w", "0.01" } } do
    local given = table.concat(words, " ")
    it(("acquires the lock at once with %s if the job has ended"):format(given), function()
      crash(run "echo holds; exec sleep 60")
      local code, output =
        command.run(world.server, { "run", words[1], words[2] or "-v", "k", "--", "true" })
      assert.equal(0, code, output)
    end)
  end

  -- Nobody collects the dead processes as long as what has adopted them is stopped.
  it("with -n waits for dead processes of the job that have not been reaped", function()
    local child, pid = run "echo holds; exec sleep 60"
    process.signal(child.pid, "STOP")
    process.signal(pid, "KILL")
    local waiter = command.start(world.server, { "run", "-n", "k", "--", "true" })
    world.children[#world.children + 1] = waiter
    local waits = process.wait_until(function() return world.cli("ZCARD", "holdfast_queue:{k}") == 1 end)
    process.signal(child.pid, "CONT")
    local how, code = waiter:wait(20)
    assert(waits, waiter:output())
    assert.same({ "exit", 0 }, { how, code }, waiter:output())
  end)

  it("with -n fails at once while a process of the crashed run's job is alive", function()
    crash(run "setsid sleep 60 & echo survivor $! holds; wait")
    local code, output = command.run(world.server, { "run", "-v", "-n", "k", "--", "true" })
    assert.equal(1, code, output)
    assert.not_matches("has crashed", output)
  end)

  it("acquires the lock once --min-hold is over and the job has ended", function()
    local child, pid = start { "run", "k", "--min-hold", "0.5", "-c", "echo holds; exec sleep 60" }
    crash(child, pid)
    assert_freed("k", "--", "true")
  end)

  for name, job in pairs {
    ["in the job's process group"] = "sleep 60 & echo survivor $! holds; wait",
    ["in a separate session"] = "setsid sleep 60 & echo survivor $! holds; wait",
    ["under `timeout`, which creates a process group"] = "timeout 60 sleep 60 & echo survivor $! holds; wait",
  } do
    it("does not acquire the lock while the job has a process " .. name, function()
      crash(run(job))
      assert_kept("k", "--", "true")
    end)
  end

  it("does not acquire the lock from a run that is only stopped or had --no-crash-release", function()
    local child, pid = run("echo holds; exec sleep 60")
    process.signal(pid, "STOP")
    assert_kept("k", "--", "true")
    crash(child, pid)
    world.cli("DEL", "k")
    crash(run("echo holds; exec sleep 60", "--no-crash-release"))
    assert_kept("k", "--", "true")
  end)

  -- The other process has only the owner's text in common with the job.
  it("does not acquire the lock while another process holds it as the same owner", function()
    local child, pid = run("echo owner $HOLDFAST_OWNER holds; exec sleep 60")
    local owner = child:output():match("owner (%S+)")
    local lock = world.client():lock("k", { owner = owner })
    assert(lock:acquire())
    crash(child, pid)
    assert_kept("k", "--", "true")
    assert.is_true(lock:is_held())
    assert(lock:release())
    assert_freed("k", "--", "true")
  end)

  -- → what the job sees of its record, its group
  local function see_record(no_rename)
    local preload = os.getenv("LD_PRELOAD")
    local code, output = command.run(world.server, {
      "run", "k", "--", "sh", "-c",
      "readlink /dev/shm/holdfast-$(id -u)/${HOLDFAST_OWNER%:*} || echo none; echo group $$",
      env = {
        LD_PRELOAD = (preload and preload .. " " or "") .. process.build .. "/support/rename.so",
        HOLDFAST_NO_RENAME = no_rename,
      },
    })
    assert.equal(0, code, output)
    return output:match("^(.*)\ngroup (%d+)\n$")
  end

  -- Without the gate, the job would read an earlier record.
  it("starts its job only once its own process record contains the job's process group", function()
    local record, group = see_record()
    assert.matches("%d+ %d+ " .. group .. "$", record)
  end)

  it("starts its job without a process record if the record file cannot be renamed", function()
    assert.equal("none", (see_record "1"))
  end)
end)
