-- holdfast run: takes the locks, runs the command, releases.

local core = require "holdfast.core"
local exits = require "holdfast.command.exits"
local holding = require "holdfast.command.holding"
local job = require "holdfast.command.job"
local options = require "holdfast.command.options"
local output = require "holdfast.command.output"
local records = require "holdfast.command.records"
local target = require "holdfast.command.target"
local work = require "holdfast.command.work"

local unpack = table.unpack or unpack

local run = {}

run.usage = "holdfast run [options] KEY… -- command [argument…]\n" ..
  "       holdfast run [options] KEY… -c 'shell command'"
run.summary = "Runs a command while holding a lock; of several KEYs, while holding all of them."

run.options = target.options(target.waiting, {
  { "duplicate-exit", value = "CODE", check = options.exit_code,
    help = "exit code of a job that is done already; that of -E, or 79" },
  work.command,
  work.grace,
  { "min-hold", value = "TIME", check = options.seconds, help = "hold the lock at least so long" },
  { "idempotent", value = "TIME", check = options.lease,
    help = "not again for so long after a success" },
}, target.holding)

run.more = "TIME: seconds, or with units: 90, 1.5, 5m, 1h30m.\n\n" .. exits.help

-- ---- what is asked for ----

-- → the plan of a run | nil, message
local function read(args)
  local plan, message = work.read(run.options, args)
  if not plan then return nil, message end
  if plan.given.idempotent and #plan.keys > 1 then return nil, "--idempotent is for one KEY" end
  plan.min_hold = plan.given["min-hold"] or 0
  return plan
end

-- ---- the run ----

local Run = {}
Run.__index = Run

function Run:job_plan()
  return work.plan(self.plan, self.holding, self.out)
end

local function succeeded(result)
  return result.how == "exit" and result.number == 0 and not result.lost
end

-- A job that fails leaves no record: it may run again at once.
-- → the job's result | nil, message, code | the result, message, code: its success is not recorded
function Run:once()
  local failed = nil
  local function guarded()
    local result = job.run(self.holding.group, self:job_plan())
    failed = not succeeded(result) and result or nil
    if failed then error(failed, 0) end
    return result
  end
  local key = self.plan.keys[1]
  local info = ('"%s" is done already or runs, on %s; holdfast show tells for how long it is done')
    :format(key, core.client.server(self.client))
  local opts = { expire = self.plan.given.idempotent, info = info }
  local results = { pcall(self.client.idempotent, self.client, records.key(key), opts, guarded) }
  if failed then return failed end
  if not results[1] then error(results[2], 0) end
  local result, message, code, late = unpack(results, 2, 5)
  return result or late and late[1], message, code
end

function Run:job()
  if self.plan.given.idempotent then return self:once() end
  return job.run(self.holding.group, self:job_plan())
end

-- ---- how it ended ----

-- What went wrong after the job is no reason to hide how it ended, unless the lock was lost.
function Run:finish(result, message, code)
  local released, loss = self.holding:release()
  if not result then return self.holding:failed(message, code) end
  if code then self.out:problem("warning", { { "code", code } }, message) end
  if result.lost or result.how and not released then return self.holding:failed_by_loss(loss) end
  return work.exit_of(result, self.plan, self.holding, self.out)
end

function Run:main()
  local held, message, code = self.holding:acquire()
  local exit = held and self:finish(self:job()) or not held and self.holding:failed(message, code)
  self.holding:close()
  return exit
end

function run.main(args)
  local plan, message = read(args)
  local given = plan and plan.given or { json = options.asks_for(args, "--json") }
  local out = output.new("holdfast run", given)
  if not plan then return out:fail(exits.USAGE, "usage", message) end
  local client
  client, message = target.client(plan)
  if not client then return out:fail(exits.USAGE, "usage", message) end
  local held = holding.new(client, plan, out)
  return setmetatable({ plan = plan, client = client, out = out, holding = held }, Run):main()
end

return run
