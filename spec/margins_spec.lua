-- What the command does before a lease ends, with a clock that the test moves: no server, process
-- or sleep. `run` and `lead` end a job that ignores TERM, `hold` ends itself.

local DRAWS = tonumber(os.getenv "HOLDFAST_MARGINS" or 10) -- in each test
local EXACT = 1e-6
local LOOK = 0.002 -- the shortest time between two looks at a job

-- ---- a process, a lock, and their clock ----

local now, late, kills, killed_at
local lock = {} -- renewed_until: when renewals end; lost_at: when it is deleted, or nil

local core = setmetatable({ now = function() return now end }, { __index = require "holdfast.core" })

-- A job that runs until KILL. Each wait ends late by late().
local process = setmetatable({
  wait = function(seconds)
    assert.is_true(seconds >= 0, "a wait until before now")
    now = now + math.max(seconds, 1e-9) + late() -- the clock counts nanoseconds
  end,
  kill = function(_, name)
    kills[name] = kills[name] or now
    if name == "KILL" then killed_at = now end
    return true
  end,
  status = function() if killed_at then return "signal", 9 end end,
  exists = function() return not killed_at end,
  spawn = function() return 1234 end,
  out_of_reach = function() return {} end,
  open_terminal = function() return false end,
  take_terminal = function() return false end,
  catch = function() return true end,
  uncatch = function() end,
}, { __index = require "holdfast.process" })

-- Returns the end of a lease, less the drift.
local function term(from, lease) return from + lease - math.min(lease / 100 + 0.002, lease / 4) end

function lock.ends_at()
  local renewals = math.floor(math.max(math.min(now, lock.renewed_until), 0) / (lock.lease / 3))
  return term(renewals * lock.lease / 3, lock.lease)
end

function lock.lost()
  if lock.lost_at and now >= lock.lost_at then return "deleted" end
  return now >= lock.ends_at() and "unreachable" or nil
end

function lock.remaining() return lock.lost() and 0 or lock.ends_at() - now end

-- ---- the command's files, with these in place of the real ones ----

local function load_with(replaced, name)
  local before, signals = {}, "holdfast.command.signals"
  for _, file in ipairs { "holdfast.core", "holdfast.process", "holdfast.command.target",
    "holdfast.command.holding", "holdfast.command.locks", "holdfast.command.waiting", "holdfast.command.subcommand",
    signals, name } do
    before[file] = { package.loaded[file] }
    local anew = replaced[file] or file == name or file == signals
    if anew then package.loaded[file] = replaced[file] end
  end
  local loaded = require(name)
  for file, was in pairs(before) do package.loaded[file] = was[1] end
  return loaded
end

local job = load_with({ ["holdfast.core"] = core, ["holdfast.process"] = process }, "holdfast.command.job")

-- Runs a job, then waits for the rest of --min-hold, as `holdfast run` does. → the job's result
local function run_job(with)
  local result = job.run(lock, with)
  job.stay(lock, with, result)
  return result
end

-- ---- what is drawn ----

local seed

local function random()
  seed = (seed * 16807) % 2147483647
  return seed / 2147483647
end

-- Returns a number from `low` to `high`; all orders of magnitude are equally likely.
local function draw(low, high) return low * (high / low) ^ random() end

local function begin(number)
  seed = number * 7919
  for _ = 1, 3 do random() end
  now, kills, killed_at, late = 0, {}, nil, function() return 0 end
  lock.lease = draw(0.1, 3600)
  lock.renewed_until, lock.lost_at = random() * 2 * lock.lease, nil
end

-- → how long before the end of a lease KILL is sent, as in docs/reference/command.md
local function margin(lease) return math.max(0.01, math.min(lease / 50, 0.1)) end

local function plan(grace)
  local function ignore() end
  return {
    argv = {}, lease = lock.lease, renewed = true, grace = grace, min_hold = 0, on_started = ignore,
    on_lost = function(reason, left) kills.reason, kills.left = reason, left end,
    on_overdue = ignore, on_signal = ignore, on_refused = ignore, on_ended = ignore,
  }
end

local function each(check)
  for number = 1, DRAWS do
    begin(number)
    local grace = random() < 0.1 and 0 or draw(0.01, 60)
    local good, message = pcall(check, grace)
    if not good then
      error(("draw %d, lease %.3f s, grace %.3f s, renewed for %.3f s: %s"):format(number, lock.lease, grace,
        lock.renewed_until, tostring(message)), 0)
    end
  end
end

-- Runs `holdfast hold` with the lock. → when it exits
local function run_hold()
  local held = { locks = {}, group = lock, lost = lock.lost }
  function held.acquire() return true end
  function held.report_lost(_, _, left) kills.left = left end
  function held.tick() end
  function held.release() return true end
  function held.failed_by_loss() return 75 end
  function held.close() return true end
  local target = setmetatable({
    read = function() return { lease = lock.lease, renewed = true, config = {} } end,
    client = function() return {} end,
  }, { __index = require "holdfast.command.target" })
  local hold = load_with({
    ["holdfast.process"] = process, ["holdfast.command.target"] = target,
    ["holdfast.command.holding"] = { new = function() return held end },
  }, "holdfast.command.hold")
  assert.equal(75, hold.main { "hold", "k" })
  return now
end

-- Runs `holdfast wait` for `seconds`, for a lock that is held until `held_until`.
-- → the exit code, when it exits, the pauses between its looks
local function run_wait(seconds, held_until)
  local pauses, subcommand, given = {}, require "holdfast.command.subcommand", { wait = seconds, quiet = true }
  now, late = 0, function() return 0 end
  local wait = load_with({
    ["holdfast.core"] = core,
    ["holdfast.process"] = setmetatable({ wait = function(pause)
      pauses[#pauses + 1] = pause
      process.wait(pause)
    end }, { __index = process }),
    ["holdfast.command.target"] = setmetatable({
      read = function() return { wait = seconds or math.huge, keys = { "k" } } end,
    }, { __index = require "holdfast.command.target" }),
    ["holdfast.command.locks"] = {
      inspect = function() return { key = "k", held = now < held_until } end,
      is_taken = function(entry) return entry.held end,
    },
    ["holdfast.command.waiting"] = { begin = function() end, finish = function() end,
      for_free = function() end },
    ["holdfast.command.subcommand"] = setmetatable({
      run = function(_, _, _, _, _, body) return body({}, given, { "k" }, {}, {}) end,
    }, { __index = subcommand }),
  }, "holdfast.command.wait")
  return wait.main { "wait", "k" }, now, pauses
end

describe("holdfast wait", function()
  it("polls often at first, then about twice a second, however long it waits", function()
    for _, held_until in ipairs { 0, 0.01, 1, 60, 3600 } do
      local code, at, pauses = run_wait(nil, held_until)
      assert.equal(0, code)
      assert.is_true(at >= held_until and at <= held_until + 0.5 + EXACT, at)
      for i, pause in ipairs(pauses) do
        assert.is_true(pause <= (i == 1 and 0.02 or 0.5), pause)
        if i > 12 then assert.equal(0.5, pause) end
      end
    end
  end)

  it("polls one last time when its --wait is over", function()
    for _, seconds in ipairs { 0, 0.01, 1.3, 60 } do
      local code, at = run_wait(seconds, 100)
      assert.equal(1, code)
      assert.is_true(at >= seconds and at < seconds + LOOK, at)
      assert.equal(0, (run_wait(seconds, seconds)))
    end
  end)
end)

describe("before a lease ends", function()
  it("a job gets TERM and then KILL if its lock cannot be renewed", function()
    each(function(grace)
      local result = job.run(lock, plan(grace))
      local ends_at, least = lock.ends_at(), margin(lock.lease)
      local reserve = math.min(grace, lock.lease / 3)
      assert.equal("unreachable", result.lost)
      assert.is_true(kills.TERM <= ends_at - reserve, "TERM is late")
      assert.is_true(kills.TERM >= ends_at - reserve - least - EXACT, "TERM is early")
      assert.is_true(kills.KILL <= ends_at - least + LOOK, "KILL is late")
      assert.is_true(kills.KILL >= kills.TERM + reserve - LOOK, "KILL is early")
      assert.is_true(math.abs(kills.left - (ends_at - kills.TERM)) < EXACT, "it reports another time")
    end)
  end)

  it("a job gets KILL even on a machine that wakes up late", function()
    each(function(grace)
      local least = margin(lock.lease)
      late = function() return random() * (least - LOOK) end
      job.run(lock, plan(grace))
      assert.is_true(kills.KILL < lock.ends_at(), "KILL is late")
    end)
  end)

  it("a job gets TERM soon after a loss of the lock, and KILL after the grace period", function()
    each(function(grace)
      lock.renewed_until = 10 * lock.lease
      lock.lost_at = random() * 2 * lock.lease
      local result = job.run(lock, plan(grace))
      local noticed = math.max(0.02, math.min(lock.lease / 20, 0.5))
      assert.equal("deleted", result.lost)
      assert.is_true(kills.TERM >= lock.lost_at, "TERM is early")
      assert.is_true(kills.TERM <= lock.lost_at + noticed + EXACT, "TERM is late")
      assert.is_true(math.abs(kills.KILL - kills.TERM - grace) < EXACT, "KILL is not after the grace")
    end)
  end)

  it("a job gets KILL even if --max-runtime has just sent it TERM", function()
    each(function(grace)
      local with = plan(grace)
      with.max_runtime = lock.renewed_until * random()
      job.run(lock, with)
      local ends_at = lock.ends_at()
      assert.is_true(kills.TERM <= with.max_runtime + LOOK, "TERM is late")
      assert.is_true(kills.KILL <= kills.TERM + grace + EXACT, "KILL is after the grace")
      assert.is_true(kills.KILL <= ends_at - margin(lock.lease) + LOOK, "KILL is late")
    end)
  end)

  it("--min-hold counts from the acquire, and ends if the lock is lost", function()
    local status, ends_at = process.status, nil
    process.status = function() if now >= ends_at or killed_at then return "exit", 0 end end
    finally(function() process.status = status end)
    for _, case in ipairs {
      { 3, 5, 5 }, { 5, 3, 5 }, { 3, 0, 3 }, { 3, 9, 7, 7 }, { 8, 20, 7, 7 },
    } do
      begin(1)
      lock.lease, lock.renewed_until, lock.lost_at, ends_at = 30, 600, case[4], case[1]
      local with = plan(0)
      with.min_hold = case[2]
      local result = run_job(with)
      local message = ("%g %g %g"):format(case[1], case[2], now)
      assert.is_true(now >= case[3] and now <= case[3] + 0.51, message)
      assert.equal(case[1] > 7 and "deleted" or nil, result.lost, message)
    end
  end)

  it("a job is not started after a signal that would end it, and receives any other signal", function()
    local wait, spawn, sent, starts = process.wait, process.spawn, {}, 0
    finally(function() process.wait, process.spawn = wait, spawn end)
    process.wait = function(seconds) return table.remove(sent, 1) or wait(seconds) end
    process.spawn = function() starts = starts + 1 return 1234 end
    begin(1)
    lock.lease, lock.renewed_until = 30, 600
    sent = { "WINCH", "CHLD", "USR1" }
    assert.same({ signal = "USR1" }, job.run(lock, plan(0)))
    assert.equal(0, starts)
    local with = plan(0)
    with.on_started = function() sent = { "WINCH", "CHLD", "CONT", "HUP" } end
    with.on_signal = function(name) kills.passed = (kills.passed or "") .. name end
    lock.lost_at = 0.5
    assert.equal("deleted", job.run(lock, with).lost)
    assert.same({ 1, "WINCHHUP" }, { starts, kills.passed })
  end)

  it("a job gets TERM once, for one reason, and its grace period is not restarted", function()
    for _, case in ipairs {
      { runtime = 1, grace = 2, lost_at = 2, kill = 3, overdue = 1, lost = "deleted" },
      { runtime = 2, grace = 5, lost_at = 1, kill = 6, overdue = 0, lost = "deleted" },
      { runtime = 1, grace = 5, kill = 6, overdue = 1 },
    } do
      begin(1)
      lock.lease, lock.renewed_until, lock.lost_at = 30, 600, case.lost_at
      local with, overdue = plan(case.grace), 0
      with.max_runtime, with.on_overdue = case.runtime, function() overdue = overdue + 1 end
      local result = job.run(lock, with)
      assert.same({ case.overdue, case.lost, case.overdue == 1 or nil },
        { overdue, result.lost, result.overdue })
      assert.is_true(kills.KILL >= case.kill and kills.KILL < case.kill + 0.6, kills.KILL)
    end
  end)

  it("--min-hold ends if the lock cannot be renewed once the job has ended", function()
    local status, exists = process.status, process.exists
    process.status = function() if kills.TERM then return "signal", 15 end end
    process.exists = function() return not kills.TERM end
    finally(function() process.status, process.exists = status, exists end)
    begin(1)
    lock.lease, lock.renewed_until = 30, 5
    local with = plan(5)
    with.min_hold = 600
    assert.equal("unreachable", run_job(with).lost)
    assert.is_true(now < kills.TERM + 1.1, now - kills.TERM)
  end)

  it("holdfast hold exits a tenth of the lease earlier", function()
    each(function()
      local at = run_hold()
      local early = lock.ends_at() - at
      assert.is_true(early <= lock.lease / 10 + EXACT, "it exits early")
      assert.is_true(early >= lock.lease / 10 - LOOK, "it exits late")
      assert.is_true(math.abs(kills.left - early) < EXACT, "it reports another time")
    end)
  end)
end)
