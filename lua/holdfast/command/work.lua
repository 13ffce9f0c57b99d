-- Code shared by `run` and `lead`: parses the command to run under a lock, and reports on the job.

local client = require "holdfast.client"
local core = require "holdfast.core"
local exits = require "holdfast.command.exits"
local locale = require "holdfast.locale"
local options = require "holdfast.command.options"
local settings = require "holdfast.command.settings"
local target = require "holdfast.command.target"

local work = {}

work.command = { "command", short = "c", value = "COMMAND", help = "run this with /bin/sh -c" }
work.grace = {
  "grace", value = "TIME", check = options.seconds,
  help = "time between TERM and KILL when the job has to be stopped (default: 5s)",
}

work.no_crash_release = { "no-crash-release", help = "keep the lock until its lease ends if holdfast and the job crash" }

work.pass_url = {
  "pass-url", help = "pass the server's user and password to the command in HOLDFAST_URL or HOLDFAST_SERVERS",
}

-- Suggests a command line, assuming that the first word is the key.
local function suggest_marker(words, subcommand)
  if #words < 2 then return ("; use holdfast %s KEY -- command"):format(subcommand) end
  return ("; did you mean holdfast %s %s -- %s%s?"):format(subcommand, words[1], words[2],
    words[3] and " …" or "")
end

-- `words`: KEYs; `rest`: the arguments after --. → the command's arguments | nil, message
local function parse_command(given, words, rest, subcommand)
  if given.command and rest then return nil, "give either -c or a command after --, not both" end
  if given.command then return { "/bin/sh", "-c", given.command } end
  if not rest then return nil, "no -- before the command" .. suggest_marker(words, subcommand) end
  if #rest == 0 then return nil, "no command after --" end
  return rest
end

-- Parses the arguments of a subcommand that runs a command. → a plan | nil, message
function work.read(known, args)
  local given, words, rest = options.read(known, args, 2)
  if not given then return nil, words end
  local argv, message = parse_command(given, words, rest, args[1])
  if not argv then return nil, message end
  local plan
  plan, message = target.read(given, words)
  if not plan then return nil, message end
  plan.argv = argv
  return plan
end

local CRASH_RELEASE_OFF = { unsupported = "this system does not support it", denied = "its directory in /dev/shm cannot be used" }

-- Returns a listener that reports events about crashes (docs/explanation/crash.md) and the server.
local function new_listener(out)
  return function(event)
    if event.event == "crash_released" then
      out:event("crash_released", { { "key", event.key }, { "owner", event.owner } },
        ('released "%s": its holder has crashed'):format(event.key))
    elseif event.event == "crash_release_off" then
      out:event("crash_release_off", { { "code", event.code } },
        "crash release is off: " .. CRASH_RELEASE_OFF[event.code])
    elseif event.event == "tenant_exposed" then
      out:advice("tenant_exposed", { { "server", event.server } }, event.server .. settings.EXPOSED)
    end
  end
end

-- → a client that holds the locks for a job | nil, message
function work.client(plan, out)
  plan.crash_release = not (plan.given["no-crash-release"] or plan.config.servers)
  if not plan.crash_release then return target.client(plan) end
  local more = { crash_release = true, on_event = new_listener(out) }
  local job_client, message = target.client(plan, more)
  if not job_client then return nil, message end
  -- Allows locks whose owner is this client's, which the job's children may also use: after the job
  -- has crashed, waiters free a lock only if its hold count is 1.
  client.defaults(job_client).crash_release = nil
  return job_client
end

local OUTCOMES = {
  unstarted = "not starting the job",
  ending = "stopping the job",
  partly = "stopping those of the job's processes that holdfast can signal; the others keep running",
  running = "the job keeps running",
}

-- Reports processes of the job that cannot be signalled. `name`: the signal that should have ended
-- these processes, or nil. If there was no such signal, nothing has failed, so the report goes only
-- to a terminal or a log: cron mails any other output.
local function report_refused(plan, out, pids, name)
  local who = (#pids == 1 and "the job's process %d belongs" or "the job's processes %s belong")
    :format(#pids == 1 and pids[1] or table.concat(pids, ", "))
  local it = #pids == 1 and "it" or "them"
  local text = ("%s to another user, so holdfast cannot %s; start holdfast as root (sudo %s …)"):format(who,
    name and ("send %s to %s"):format(name, it) or ("stop %s if the lock is lost"):format(it), out.name)
  local fields = { { "pid", pids[1] }, { "count", #pids }, { "signal", name } }
  if name or plan.keeps then out:problem("refused", fields, text) else out:advice("refused", fields, text) end
end

local function report_overdue(seconds, out, ending)
  local text = ("the job has reached its --max-runtime of %s s; %s"):format(locale.decimal("%g", seconds), ending)
  out:problem("overdue", { { "seconds", seconds } }, text)
end

local function report_no_terminal(out, ending)
  out:problem("no_terminal", {}, "the job waits for the terminal, which no shell is left to give; " .. ending)
end

-- Returns the plan for job.run, which runs the command under the locks of `held`.
function work.plan(plan, held, out)
  return {
    argv = plan.argv, environment = target.environment(plan, held.locks), keeps = plan.keeps,
    lease = plan.lease, grace = plan.grace, min_hold = plan.min_hold,
    uuid = plan.crash_release and core.client.uuid(held.client) or nil,
    max_runtime = plan.given["max-runtime"],
    tick = function() held:tick() end,
    on_started = function(pid) out:event("started", { { "pid", pid } }, "started pid " .. pid) end,
    on_signal = function(name, sent)
      if sent then out:event("signal", { { "signal", name } }, "passing on " .. name) end
    end,
    on_refused = function(pids, name) report_refused(plan, out, pids, name) end,
    on_lost = function(reason, left, outcome) held:report_lost(reason, left, OUTCOMES[outcome]) end,
    on_overdue = function(outcome) report_overdue(plan.given["max-runtime"], out, OUTCOMES[outcome]) end,
    on_no_terminal = function(outcome) report_no_terminal(out, OUTCOMES[outcome]) end,
    on_ended = function(how, number)
      local text = how == "exit" and "exited with code " or "terminated by signal "
      out:event("ended", { { how, number } }, text .. number)
    end,
  }
end

-- Returns the exit code for the result of job.run.
function work.exit_of(result, plan, held, out)
  if result.signal then return held:failed(result.signal, "signal") end
  if result.error then
    local exit = result.errno == 2 and exits.NOT_FOUND or exits.CANNOT_START
    return out:fail(exit, "not_started", ('cannot start "%s": %s'):format(plan.argv[1], result.error))
  end
  if result.overdue then return exits.MAX_RUNTIME end
  return result.how == "exit" and result.number or exits.of_signal(result.number)
end

return work
