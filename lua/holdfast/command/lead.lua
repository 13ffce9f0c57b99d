-- holdfast lead: keeps a command running on exactly one of many hosts, the one that holds the lock.
--
-- Each term uses its own client, so that a late command from one term cannot affect the next term.

local core = require "holdfast.core"
local exits = require "holdfast.command.exits"
local holding = require "holdfast.command.holding"
local job = require "holdfast.command.job"
local leader = require "holdfast.leader"
local options = require "holdfast.command.options"
local output = require "holdfast.command.output"
local process = require "holdfast.process"
local settings = require "holdfast.command.settings"
local signals = require "holdfast.command.signals"
local target = require "holdfast.command.target"
local work = require "holdfast.command.work"

local lead = {}

lead.usage = "holdfast lead [options] KEY -- command [argument…]\n" ..
  "       holdfast lead [options] KEY -c 'shell command'"
lead.summary = "Keep a command running on exactly one of many hosts."

local PAUSE = 1 -- seconds before a restart or a retry, by default

local NOT_FOR_LEAD = { ["one-by-one"] = true, shared = true, exclusive = true, permits = true }

local function options_for_lead(all)
  local kept = { title = all.title }
  for _, option in ipairs(all) do
    if not NOT_FOR_LEAD[option[1]] then kept[#kept + 1] = option end
  end
  return kept
end

lead.options = options.join({
  title = "Command",
  work.command,
  { "once", help = "when the command exits on its own, exit with the same code" },
  { "pause", value = "TIME", check = options.seconds,
    help = "pause before a restart or a retry (default: 1s)" },
  work.grace,
  work.no_crash_release,
  work.pass_url,
}, options_for_lead(target.locking), settings.options, target.reporting)

lead.details = "The command starts when this host acquires the lock, and is stopped when the lock is lost.\n"
  .. "INT, QUIT and TERM stop both the command and holdfast.\n\n" .. target.TIME .. "\n\n" .. exits.help "lead"
lead.examples = {
  "holdfast lead scheduler -- ./scheduler              # runs on one host, moves if that host dies",
  "holdfast lead --once import -- ./import             # until the command exits on its own",
  "holdfast lead --lease 10s --pause 5s mail -- ./mail # fails over in 10 s, restarts after 5 s",
}

-- ---- arguments ----

local function read(args)
  local plan, message = work.read(lead.options, args)
  if not plan then return nil, message end
  if #plan.keys > 1 then
    return nil, ('unexpected argument "%s"; lead takes one KEY; put -- before the command'):format(plan.keys[2])
  end
  plan.min_hold, plan.pause, plan.keeps = 0, plan.given.pause or PAUSE, true
  return plan
end

-- ---- terms ----

local ALWAYS_TERMINATING = { INT = true, QUIT = true, TERM = true }

local Lead = {}
Lead.__index = Lead

-- Handles a signal while the lock is not held. TSTP stops only this program, because no command is
-- running.
-- → the exit code if the signal ends this program | nil
function Lead:on_signal(name)
  if name == "TSTP" then process.stop(name, false) end
  if not signals.terminating[name] then return nil end
  self.out:event("signal", { { "signal", name } }, "terminated by " .. name)
  return exits.of_signal(name)
end

-- Waits before the next term. → the exit code if a signal ends the program | nil
function Lead:pause()
  local deadline = core.now() + self.plan.pause
  repeat
    local name = process.wait(math.max(deadline - core.now(), 0))
    local exit = name and self:on_signal(name)
    if exit then return exit end
  until not name and core.now() >= deadline
end

-- Reports a failure, unless it has the same code as the last one reported.
function Lead:report_failure(message, code)
  if code == self.reported_code then return end
  self.reported_code = code
  self.out:problem("warning", { { "code", code } }, message .. "; will retry")
end

-- Waits for the lock. → true | nil, the exit code (nil: try again)
function Lead:acquire(held)
  local acquired, message, code = held:acquire()
  if acquired then
    if not self.plan.config.servers then leader.announce(held.locks[1]) end
    self.reported_code, self.waiting_since, self.has_acquired = nil, nil, true
    return true
  end
  if code == "signal" then return nil, self:on_signal(message) end
  if not core.is_transient(code, self.has_acquired) then return nil, held:failed(message, code) end
  self:report_failure(message, code)
  return nil, self:pause()
end

-- Returns whether this program must end along with the command: INT, QUIT or TERM was passed on, or
-- another signal that was passed on has terminated the command.
local function must_end(result, passed_on)
  local number = result.how == "signal" and result.number
  for name in pairs(passed_on) do
    local may_end = not signals.harmless[name]
    if may_end and ALWAYS_TERMINATING[name] then return true end
    if may_end and number and exits.of_signal(name) == 128 + number then return true end
  end
  return false
end

-- Runs the command for one term. → the exit code | nil to continue
function Lead:run_term(held)
  local plan, passed_on = work.plan(self.plan, held, self.out), {}
  local pass_on = plan.on_signal
  function plan.on_signal(name, sent)
    passed_on[name] = true
    pass_on(name, sent)
  end
  local result = job.run(held.group, plan)
  local _, loss = held:release()
  local is_last = must_end(result, passed_on)
  if result.lost then return is_last and held:failed_by_loss(loss) or nil end
  if is_last or result.error or result.signal or self.plan.given.once then
    return work.exit_of(result, self.plan, held, self.out)
  end
  return self:pause()
end

function Lead:try_term()
  local client, message = work.client(self.plan, self.out)
  if not client then return self.out:fail(exits.USAGE, "usage", message) end
  self.waiting_since = self.waiting_since or core.now()
  local held = holding.new(client, self.plan, self.out, self.waiting_since)
  held.reported_outage = self.reported_code ~= nil
  local acquired, exit = self:acquire(held)
  if acquired then exit = self:run_term(held) end
  held:close()
  return exit
end

function lead.main(args)
  local plan, message = read(args)
  local out = output.new("holdfast lead", plan and plan.given
    or { json = options.asks_for(args, "--json") })
  if not plan then return out:fail(exits.USAGE, "usage", message) end
  local self = setmetatable({ plan = plan, out = out }, Lead)
  local exit
  repeat exit = self:try_term() until exit
  return exit
end

return lead
