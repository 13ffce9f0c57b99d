-- holdfast run: takes the lock, runs the command, releases.

local core = require "holdfast.core"
local exits = require "holdfast.command.exits"
local identity = require "holdfast.command.identity"
local job = require "holdfast.command.job"
local options = require "holdfast.command.options"
local output = require "holdfast.command.output"
local process = require "holdfast.process"
local settings = require "holdfast.command.settings"

local unpack = table.unpack or unpack

local run = {}

run.usage = "holdfast run [options] KEY -- command [argument…]\n       holdfast run [options] KEY -c 'shell command'"
run.summary = "Runs a command while holding a lock."

run.options = {
  { "no-wait", short = "n", help = "fail at once when the lock is taken" },
  { "wait", short = "w", value = "SECONDS", check = options.seconds, help = "fail after so long; for ever by default" },
  { "busy-exit", short = "E", value = "CODE", check = options.exit_code, help = "exit code when the lock is taken; 1" },
  { "command", short = "c", value = "COMMAND", help = "run it with /bin/sh -c" },
  { "lease", value = "SECONDS", check = options.lease, help = "the lock outlives a dead holder so long; 30" },
  { "grace", value = "SECONDS", check = options.seconds, help = "from TERM to KILL when the lock is lost; 5" },
  { "min-hold", value = "SECONDS", check = options.seconds, help = "hold the lock at least so long" },
  { "one-by-one", value = "TYPE:ID", help = "queue up for this type and id, in place of a KEY" },
  { "idempotent", value = "EXPIRE", check = options.lease, help = "not again within EXPIRE seconds" },
  { "name", value = "NAME", check = options.name, help = "who runs it, for `holdfast show`" },
  settings.options[1],
  settings.options[2],
  settings.options[3],
  { "json", help = "events on standard error as JSON" },
  { "verbose", short = "v", help = "say what happens on standard error" },
}

local LEASE, GRACE = 30, 5
local TERMINATING = { "HUP", "INT", "QUIT", "TERM", "USR1", "USR2" }

local REASONS = {
  expired = "its lease ends",
  taken = "another owner has it",
  deleted = "its key was deleted on the server",
  unreachable = "it could not be renewed",
}

-- ---- what is asked for ----

local function command_of(given, rest)
  if given.command and rest then return nil, "either -c or a command after --" end
  if given.command then return { "/bin/sh", "-c", given.command } end
  if not rest then return nil, "no -- before the command" end
  if #rest == 0 then return nil, "no command after --" end
  return rest
end

local function target_of(given, words)
  local name = given["one-by-one"]
  if name then
    local biz_type, biz_id = name:match("^([^:]+):(.+)$")
    if not biz_type then return nil, ('--one-by-one must be TYPE:ID, not "%s"'):format(name) end
    if #words > 0 then return nil, ('"%s": no KEY with --one-by-one, and -- before the command'):format(words[1]) end
    return { key = biz_type .. "_" .. biz_id, biz_type = biz_type, biz_id = biz_id }
  end
  if #words == 0 then return nil, "no KEY" end
  if words[1] == "" then return nil, "KEY is empty" end
  if #words > 1 then return nil, ('"%s": one KEY only, and -- before the command'):format(words[2]) end
  return { key = words[1] }
end

local function servers_text(chosen)
  return chosen.servers and table.concat(chosen.servers, ",") or nil
end

-- A run inside a run on the same lock enters it again, as the same owner.
local function is_inside(target, chosen)
  return os.getenv("HOLDFAST_OWNER") and os.getenv("HOLDFAST_OWNER") ~= "" and os.getenv("HOLDFAST_KEY") == target.key
    and (chosen.url and os.getenv("HOLDFAST_URL") == chosen.url
      or chosen.servers and os.getenv("HOLDFAST_SERVERS") == servers_text(chosen))
end

-- → the plan of a run | nil, message
local function read(args)
  local given, words, rest = options.read(run.options, args, 2)
  if not given then return nil, words end
  local argv, target, chosen, message
  target, message = target_of(given, words)
  if target then argv, message = command_of(given, rest) end
  if argv then chosen, message = settings.load(given) end
  if not chosen then return nil, message end
  if given["no-wait"] and given.wait then return nil, "-n and -w exclude each other" end
  return {
    given = given, target = target, argv = argv, chosen = chosen,
    lease = chosen.lease or LEASE,
    renewed = not (target.biz_type and given.lease),
    grace = chosen.grace or GRACE,
    min_hold = given["min-hold"] or 0,
    wait = given["no-wait"] and 0 or given.wait or math.huge,
    inside = is_inside(target, chosen),
  }
end

-- A server that hangs is noticed long before the lease can end.
local function new_client(plan)
  local share = math.max(plan.lease / 10, 0.1)
  local client, message = settings.client(plan.chosen, {
    connect_timeout = math.min(1, share),
    command_timeout = math.min(3, share),
    lease = plan.lease,
  })
  if not client then return nil, message end
  return client
end

-- ---- the run ----

local Run = {}
Run.__index = Run

local function environment(self, lock)
  local plan, token = self.plan, lock:token()
  local list = {
    "HOLDFAST_KEY=" .. plan.target.key,
    "HOLDFAST_OWNER=" .. lock:owner(),
    "HOLDFAST_TOKEN=" .. (token and ("%.0f"):format(token) or ""),
    "HOLDFAST_URL=" .. (plan.chosen.url or ""),
  }
  if plan.chosen.servers or os.getenv("HOLDFAST_SERVERS") then
    list[#list + 1] = "HOLDFAST_SERVERS=" .. (servers_text(plan.chosen) or "")
  end
  return list
end

function Run:on_lost(reason, left)
  self.told_loss = true
  local text = ('lost the lock "%s": %s; ending the job'):format(self.plan.target.key, REASONS[reason] or reason)
  self.out:problem("lost", { { "key", self.plan.target.key }, { "reason", reason }, { "left", left } }, text)
end

function Run:on_ended(how, number)
  local text = how == "exit" and "ended with exit code " or "ended by signal "
  self.out:event("ended", { { how, number } }, text .. number)
end

function Run:job_plan(lock)
  local plan, out = self.plan, self.out
  return {
    argv = plan.argv, environment = environment(self, lock),
    lease = plan.lease, renewed = plan.renewed, grace = plan.grace, min_hold = plan.min_hold,
    on_started = function(pid) out:event("started", { { "pid", pid } }, "started pid " .. pid) end,
    on_signal = function(name) out:event("signal", { { "signal", name } }, "passes on " .. name) end,
    on_lost = function(reason, left) self:on_lost(reason, left) end,
    on_ended = function(how, number) self:on_ended(how, number) end,
    on_time = function() if self.who then self.who:keep(core.now()) end end,
  }
end

function Run:tell_acquired(lock)
  local waited = core.now() - self.began
  self.out:event("acquired", {
    { "key", lock:key() }, { "owner", lock:owner() }, { "token", lock:token() }, { "waited", waited },
  }, ('acquired "%s" after %.3f s'):format(lock:key(), waited))
end

local function succeeded(result)
  return result.how == "exit" and result.number == 0 and not result.lost
end

-- A job that fails leaves no record: it may run again at once.
function Run:once(lock)
  local name, failed = "holdfast_once:" .. self.plan.target.key, nil
  local function guarded()
    local result = job.run(lock, self:job_plan(lock))
    failed = not succeeded(result) and result or nil
    if failed then error(failed, 0) end
    return result
  end
  local opts = { expire = self.plan.given.idempotent, info = "done less than the given time ago, or runs already" }
  local results = { pcall(self.client.idempotent, self.client, name, opts, guarded) }
  if results[1] then return unpack(results, 2, 5) end
  if failed then return failed end
  error(results[2], 0)
end

function Run:job(lock)
  if self.plan.given.idempotent then return self:once(lock) end
  return job.run(lock, self:job_plan(lock))
end

-- → the job's result | nil, message, code
function Run:hold(wait)
  local plan, client = self.plan, self.client
  local function held(lock)
    self:tell_acquired(lock)
    return self:job(lock)
  end
  if plan.target.biz_type then
    local template = client:one_by_one { wait = wait > 0 and wait or nil, queue = wait > 0, lease = plan.given.lease,
      interruptible = true }
    return template:execute(plan.target.biz_type, plan.target.biz_id, held)
  end
  return client:with_lock(plan.target.key, {
    wait = wait, lease = plan.lease, watchdog = true, interruptible = true,
    owner = plan.inside and os.getenv("HOLDFAST_OWNER") or nil,
  }, held)
end

-- A stop and continue may end a wait as a signal does: then the wait goes on.
-- → as hold; nil, name, "signal" after a signal
function Run:acquire()
  local deadline = core.now() + self.plan.wait
  while true do
    local result, message, code = self:hold(math.max(deadline - core.now(), 0))
    if code ~= "interrupted" then return result, message, code end
    local name = process.wait(0)
    if name then return nil, name, "signal" end
  end
end

-- ---- how it ended ----

-- The exit code of a result of job.run.
function Run:ended(result)
  if result.signal then
    self.out:event("signal", { { "signal", result.signal } }, "ended by " .. result.signal .. " before the start")
    return exits.of_signal(result.signal)
  end
  if result.unconfirmed then return self.out:fail(exits.of(result.code), result.code, result.unconfirmed) end
  if result.error then
    local exit = result.errno == 2 and exits.NOT_FOUND or exits.CANNOT_START
    return self.out:fail(exit, "not_started", ("cannot start %s: %s"):format(self.plan.argv[1], result.error))
  end
  if result.lost then return exits.LOST end
  return result.how == "exit" and result.number or exits.of_signal(result.number)
end

function Run:failed(message, code)
  if code == "busy" then return self.out:fail(self.plan.given["busy-exit"] or exits.BUSY, code, message) end
  if code == "lost" and self.told_loss then return exits.LOST end
  return self.out:fail(exits.of(code), code, message)
end

-- What went wrong after the job is no reason to hide how it ended, unless the lock was lost.
function Run:finish(result, message, code, results)
  local late = code and results and results[1]
  if late and (code ~= "lost" or not late.how) then
    self.out:problem("warning", { { "code", code } }, message)
    return self:ended(late)
  end
  if code == "signal" then return self:ended { signal = message } end
  if code then return self:failed(message, code) end
  self.out:event("released", { { "key", self.plan.target.key } }, "released")
  return self:ended(result)
end

function Run:main()
  assert(process.catch(unpack(TERMINATING)))
  self.began = core.now()
  if self.plan.chosen.url then
    self.who = identity.new(self.client, process.host(), process.pid(), self.plan.chosen.name)
    self.who:tell_for_wait(self.plan.wait)
  end
  local exit = self:finish(self:acquire())
  if self.who and exit ~= exits.UNREACHABLE then self.who:forget() end
  self.client:close()
  return exit
end

function run.main(args)
  local plan, message = read(args)
  local out = output.new("holdfast run", plan and plan.given or { json = options.asks_for(args, "--json") })
  if not plan then return out:fail(exits.USAGE, "usage", message) end
  if plan.inside and plan.target.biz_type then
    return out:fail(plan.given["busy-exit"] or exits.BUSY, "busy", "this runs inside the same --one-by-one already")
  end
  local client
  client, message = new_client(plan)
  if not client then return out:fail(exits.USAGE, "usage", message) end
  return setmetatable({ plan = plan, client = client, out = out }, Run):main()
end

return run
