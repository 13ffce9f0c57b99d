-- holdfast run: acquires the locks, runs the command, and releases them.

local core = require "holdfast.core"
local exits = require "holdfast.command.exits"
local holding = require "holdfast.command.holding"
local job = require "holdfast.command.job"
local lazy = require "holdfast.lazy"
local once = lazy "holdfast.once"
local options = require "holdfast.command.options"
local process = require "holdfast.process"
local output = require "holdfast.command.output"
local records = lazy "holdfast.command.records"
local settings = require "holdfast.command.settings"
local signals = require "holdfast.command.signals"
local target = require "holdfast.command.target"
local work = require "holdfast.command.work"
local unpack = require("holdfast.compat").unpack

local run = {}

run.usage = "holdfast run [options] KEY… -- command [argument…]\n" ..
  "       holdfast run [options] KEY… -c 'shell command'"
run.summary = "Run a command while holding one or more locks."

run.options = options.join(target.waiting, {
  title = "Command",
  work.command,
  { "max-runtime", value = "TIME", check = options.duration,
    help = "stop the command after this long: TERM, then KILL" },
  work.grace,
  work.no_crash_release,
  work.pass_url,
  { "min-hold", value = "TIME", check = options.seconds, help = "hold the lock for at least this long" },
  { "idempotent", value = "TIME", check = options.duration,
    help = "do not run again for this long after a successful run" },
  { "once-per", value = "TIME", check = options.duration,
    help = "run once for each fire of a schedule with this period that many hosts share" },
  { "retry", help = "with --once-per: let another host run again for a fire whose run failed" },
  { "duplicate-exit", value = "CODE", check = options.exit_code,
    help = "exit code if --idempotent or --once-per finds the job already done (default: the -E code, or 79)" },
}, target.locking, settings.options, target.reporting)

run.details = target.TIME .. "\n\n" .. exits.help "run"
run.examples = {
  "holdfast run -E 0 --once-per 1h backup -- ./backup # from cron on many hosts: once an hour",
  "holdfast run -w 10m deploy:shop -- ./deploy.sh     # waits in line, for at most 10 minutes",
  "holdfast run stock:7 stock:9 -- ./move 7 9         # with both locks, or not at all",
}

-- ---- arguments ----

local NOT_WITH_ONCE_PER = { "idempotent", "one-by-one", "shared", "exclusive", "permits" }

-- → nil | what is wrong with the options for scheduled runs
local function schedule_problem(plan)
  local given = plan.given
  if not given["once-per"] then return given.retry and "--retry needs --once-per" or nil end
  if #plan.keys > 1 then return "--once-per takes one KEY" end
  for _, name in ipairs(NOT_WITH_ONCE_PER) do
    if given[name] then return ("--once-per does not work with --%s"):format(name) end
  end
  if plan.config.servers then return "--once-per needs a single server, not --servers" end
end

-- → the plan of a run | nil, message
local function read(args)
  local plan, message = work.read(run.options, args)
  if not plan then return nil, message end
  if plan.given.idempotent and #plan.keys > 1 then return nil, "--idempotent takes one KEY" end
  message = schedule_problem(plan)
  if message then return nil, message end
  plan.min_hold = plan.given["min-hold"] or 0
  return plan
end

-- ---- the run ----

local Run = {}
Run.__index = Run

local function has_succeeded(result)
  return result.how == "exit" and result.number == 0 and not result.lost and not result.overdue
end

local CRASH_PATIENCE = 2 -- seconds to wait for the record of a run that has crashed
local RECORD_STEP = 0.05 -- seconds between checks of whether a record is written

-- Returns how long to wait for an earlier run that has not recorded its end. If this run holds a
-- lock that waiters free after a crash (no -s, -x or --permits), the earlier run must have crashed,
-- and its record is freed after a wait, just like the lock.
function Run:record_wait()
  local plan = self.plan
  local has_no_crash_release = plan.mode or plan.given.permits or self.holding.is_nested
  if not plan.crash_release or has_no_crash_release then return 0 end
  return self.holding.is_after_crash and CRASH_PATIENCE or math.min(plan.wait, CRASH_PATIENCE)
end

-- Runs the job under the idempotent guard. A failed job leaves no record, so it may run again at
-- once.
-- → the job's result | nil, message, code | the result, message, code if its success could not be
-- recorded
function Run:run_idempotent()
  local failed_result = nil
  local function run_job()
    local result = job.run(self.holding.group, self.job_plan)
    failed_result = not has_succeeded(result) and result or nil
    if failed_result then error(failed_result, 0) end
    return result
  end
  local key = self.plan.keys[1]
  local info = ('"%s" is already done or running, on %s; `holdfast show` prints how long it counts as done')
    :format(key, core.client.server(self.client))
  local opts = { expire = self.plan.given.idempotent, info = info, wait = self:record_wait() }
  local results = { pcall(self.client.idempotent, self.client, records.name(key), opts, run_job) }
  if failed_result then return failed_result end
  if not results[1] then error(results[2], 0) end
  local result, message, code, unrecorded = unpack(results, 2, 5)
  return result or unrecorded and unrecorded[1], message, code
end

-- Waits until the record is written, the record's key is lost or a signal arrives. Until the client
-- is closed, it keeps trying to write the record and renews the key, so that no other run starts
-- the job.
function Run:await_record()
  local client, watchdog = self.client, self.client:watchdog()
  local function is_pending()
    local is_renewed = core.client.is_quorum(client) or watchdog:holds() > 0
    return is_renewed and not core.engine.is_quiet(client)
  end
  local name
  while is_pending() and (not name or signals.harmless[name]) do
    settings.tick(self.plan.config, client)
    name = process.wait(RECORD_STEP)
  end
end

-- ---- one run for each scheduled time ----

-- With --once-per, claims the current scheduled time, called a fire, for this run before the lock
-- is acquired. → true | nil, message, code
function Run:claim_fire()
  local plan, period = self.plan, self.plan.given["once-per"]
  if not period then return true end
  core.client.introduce(self.client, plan.config.name or "")
  self.fire = once.new_call(self.client, plan.keys[1], period, plan.given.retry)
  return self:store_other_run(once.claim(self.fire))
end

-- Stores which other run counts, if any, for the report. → may, message, code
function Run:store_other_run(may, message, code, other_run)
  self.holding.holder = other_run
  return may, message, code
end

-- Runs the job for a fire. After a loss, leaves the record unchanged, because another run may count
-- by then. If the job was not started, withdraws the claim, so that another run can count for the
-- fire. → the job's result | nil, message, code
function Run:run_scheduled()
  local lock, fire = self.holding.locks[1], self.fire
  local may, message, code = self:store_other_run(once.mark_running(fire, lock))
  if not may then
    if code ~= "duplicate" then once.withdraw(fire) end
    return nil, message, code
  end
  local result = job.run(lock, self.job_plan)
  if not result.how then
    once.withdraw(fire)
    return result
  end
  once.finish(fire, lock, has_succeeded(result) and "done" or "failed", function(text, failure)
    self.out:problem("warning", { { "code", failure } }, text)
  end)
  return result
end

function Run:run_job()
  self.job_plan = work.plan(self.plan, self.holding, self.out)
  if self.fire then return self:run_scheduled() end
  if self.plan.given.idempotent then return self:run_idempotent() end
  return job.run(self.holding.group, self.job_plan)
end

-- ---- the end ----

-- Ends the hold. → the job's exit code, even if something failed after the job; if the lock was
-- lost, the exit code for that
function Run:finish(result, message, code)
  if result and code then self.out:problem("warning", { { "code", code } }, message) end
  if result then job.stay(self.holding.group, self.job_plan, result) end
  local released, loss = self.holding:release()
  if not result then return self.holding:failed(message, code) end
  if code and core.is_transient(code, true) then self:await_record() end
  if result.lost or result.how and not released then
    return self.holding:failed_by_loss(loss)
  end
  return work.exit_of(result, self.plan, self.holding, self.out)
end

function Run:main()
  local held, message, code = self:claim_fire()
  if held then
    held, message, code = self.holding:acquire()
    if not held and self.fire then once.withdraw(self.fire) end
  end
  local exit = held and self:finish(self:run_job())
    or not held and self.holding:failed(message, code)
  self.holding:close()
  return exit
end

function run.main(args)
  local plan, message = read(args)
  local given = plan and plan.given or { json = options.asks_for(args, "--json") }
  local out = output.new("holdfast run", given)
  if not plan then return out:fail(exits.USAGE, "usage", message) end
  local client
  client, message = work.client(plan, out)
  if not client then return out:fail(exits.USAGE, "usage", message) end
  local held = holding.new(client, plan, out)
  return setmetatable({ plan = plan, client = client, out = out, holding = held }, Run):main()
end

return run
