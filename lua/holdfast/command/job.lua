-- Runs a job under a held lock: starts it in its own process group, passes on signals, and ends it
-- before the lock can expire.
--
-- The library's watchdog renews the lock in its own thread. Nothing here waits for the server while
-- the job is running.

local core = require "holdfast.core"
local process = require "holdfast.process"
local signals = require "holdfast.command.signals"

local job = {}

local BY_TERMINAL = { TSTP = true, TTIN = true, TTOU = true }
local MEANT_TO_END = { TERM = true, HUP = true }
local KILL_TIMEOUT = 1 -- seconds to wait after KILL until the job's process group is gone
local FIRST_CHECK = 0.1 -- seconds after the start; by then most programs have changed their user

local Job = {}
Job.__index = Job

local function clamp(value, low, high)
  return math.max(low, math.min(high, value))
end

-- Returns the seconds between checks.
local function period_of(plan)
  return clamp(plan.lease / 20, 0.02, 0.5)
end

-- ---- the terminal ----

-- Returns whether the job runs alone in a shell's foreground, so that it gets the terminal at its
-- start. In a script or a pipeline, the job gets the terminal when it asks for it, and the other
-- programs keep the terminal until then.
local function is_alone_in_foreground()
  return process.leads_group() and process.is_terminal(0) and process.is_terminal(1)
end

function Job:continue()
  if self.wants_terminal then process.give_terminal(self.pid) end
  process.kill(-self.pid, "CONT")
end

-- Called if the job is waiting for the terminal, but there is no shell left to give it the
-- terminal. Sends HUP and CONT, as the system does to an orphaned stopped group. Ends a job that
-- asks again.
function Job:refuse_terminal()
  if self.was_refused_terminal then
    return self:terminate(self.plan.grace, self.plan.on_no_terminal)
  end
  self.was_refused_terminal = true
  self.plan.on_no_terminal("ending")
  self:signal("HUP")
end

-- Called when the terminal has stopped the job. Stops this program as well, so that the shell
-- continues. Like the terminal, it stops this program's whole group, unless TSTP was sent only to
-- this program. The lock is not renewed in the meantime, so it stops all of the job's processes
-- with STOP, which they cannot ignore. If one of them cannot be stopped, this program continues.
function Job:follow_stop(name)
  if name ~= "TSTP" and process.give_terminal(self.pid) then
    self.wants_terminal = true
    return self:continue()
  end
  local was_in_foreground = process.take_terminal(self.pid)
  local _, refused = self:send("STOP")
  if #refused > 0 then
    self.plan.on_refused(refused, "STOP")
    if was_in_foreground then process.give_terminal(self.pid) end
    return self:continue()
  end
  local stopped = process.stop(name, was_in_foreground or name ~= "TSTP")
  if not stopped and name ~= "TSTP" then return self:refuse_terminal() end
  if self:check_lock() then self:continue() end
end

function Job:on_stopped(name)
  if self.terminal and BY_TERMINAL[name] and not self.ending then self:follow_stop(name) end
end

-- ---- signals ----

-- Signals the job's whole group.
-- → whether any process received the signal, a list of the running processes that did not
function Job:send(name)
  local sent = process.kill(-self.pid, name)
  local refused = process.out_of_reach(self.pid, name ~= "STOP")
  self.refuses = self.refuses or #refused > 0
  return sent == true, refused
end

-- Sends a signal to the group. If the signal is meant to end processes, also sends CONT, so that
-- stopped processes can act on it.
function Job:signal(name)
  local sent, refused = self:send(name)
  if MEANT_TO_END[name] then process.kill(-self.pid, "CONT") end
  return sent, refused
end

-- Checks whether signals still reach the job: 0.1 s, 0.2 s, 0.4 s, … after its start. A job may
-- change its user at any time; sudo, for example, does so once it has the password.
function Job:check_reach()
  local now = core.now()
  if self.refuses or now < self.check_at then return end
  self.check_at = now + math.max(now - self.started_at, FIRST_CHECK)
  local refused = process.out_of_reach(self.pid, true)
  self.refuses = #refused > 0
  if self.refuses then self.plan.on_refused(refused) end
end

-- ---- the end ----

-- Sends TERM now, and KILL after `grace` seconds. Calls report(outcome): "ending", "partly" or
-- "running" if TERM reached all, some or none of the processes.
function Job:terminate(grace, report)
  local kill_at = core.now() + math.max(grace, 0)
  self.kill_at = math.min(self.kill_at or kill_at, kill_at)
  self.ending = true
  local sent, refused = self:signal("TERM")
  local reached_all = #refused == 0
  report(reached_all and "ending" or sent and "partly" or "running")
  if not reached_all then self.plan.on_refused(refused, "TERM") end
end

-- Ends the job because the lock is lost or about to be lost. Sends KILL before the lock expires,
-- even if that shortens the grace period.
function Job:give_up(reason)
  local left = self.lock:remaining()
  local grace = left > 0 and math.min(self.plan.grace, left - self.slack) or self.plan.grace
  self.lost = reason
  self:terminate(grace, function(outcome) self.plan.on_lost(reason, left, outcome) end)
end

-- Ends a job that has run for too long. The lock is held until the job has ended.
function Job:check_runtime()
  if self.ending or core.now() < self.runs_until then return end
  self.overdue = true
  self:terminate(self.plan.grace, self.plan.on_overdue)
end

function Job:kill()
  local _, refused = self:send("KILL")
  if #refused > 0 and not self.reported_kill then
    self.reported_kill = true
    self.plan.on_refused(refused, "KILL")
  end
end

-- → the reason, if the lock is lost or about to be lost | nil
function Job:loss_reason()
  local reason = self.lock:lost()
  if reason or self.lock:remaining() > self.reserve then return reason end
  return "unreachable"
end

-- Ends the job if the lock is lost or about to be lost. → whether the lock is safe
function Job:check_lock()
  if self.lost then return false end
  local reason = self:loss_reason()
  if reason then self:give_up(reason) end
  return not reason
end

-- Checks the state of the job and of its lock.
function Job:check()
  if self.plan.tick then self.plan.tick() end
  repeat
    local how, number, name = process.status(self.pid)
    if how == "stopped" then self:on_stopped(name) end
    if not self.how and (how == "exit" or how == "signal" or how == "gone") then
      self.how, self.number = how, number
    end
  until not how or self.how
  if not self.how or self:lock_must_outlast() then self:check_lock() end
  if self.how then return end
  self:check_runtime()
  self:check_reach()
end

-- Returns whether the lock must outlast the job, because of a process that could not be signalled.
function Job:lock_must_outlast()
  if not (self.how and self.plan.keeps and self.refuses) then return false end
  self.refuses = #process.out_of_reach(self.pid, true) > 0
  return self.refuses
end

-- Returns whether the job has ended. If this program ended it, all other processes in its group
-- must also have ended, or KILL must have been sent KILL_TIMEOUT seconds ago.
function Job:is_over()
  if not self.how or self:lock_must_outlast() then return false end
  return not self.ending or core.now() > self.kill_at + KILL_TIMEOUT
    or not process.exists(-self.pid)
end

function Job:on_signal(name)
  if name == "CONT" then
    if self:check_lock() then self:continue() end
  elseif name and name ~= "CHLD" then
    local sent, refused = self:signal(name)
    self.plan.on_signal(name, sent)
    if #refused > 0 then self.plan.on_refused(refused, name) end
  end
end

-- Returns the seconds until the next check, which comes no later than the time at which the job
-- must be ended or killed. The checks continue if KILL does not end the job.
function Job:seconds_to_check()
  local now = core.now()
  if self.ending then
    local seconds = self.kill_at - now
    if seconds > 0 then return math.min(seconds, self.period) end
    return seconds > -KILL_TIMEOUT and 0.02 or self.period
  end
  local to_reach_check = self.refuses and math.huge or self.check_at - now
  local seconds =
    math.min(self.lock:remaining() - self.reserve, to_reach_check, self.runs_until - now)
  return clamp(seconds, 0.002, self.period)
end

function Job:watch()
  self:check()
  while not self:is_over() do
    if self.ending and core.now() >= self.kill_at then self:kill() end
    self:on_signal(process.wait(self:seconds_to_check()))
    self:check()
  end
  process.take_terminal(self.pid)
  self.plan.on_ended(self.how, self.number)
end

-- Starts the job, unless the lock has been lost since it was acquired. → true | nil, the result for
-- job.run
function Job:start()
  local reason = self:loss_reason()
  if reason then
    self.plan.on_lost(reason, self.lock:remaining(), "unstarted")
    return nil, { lost = reason }
  end
  local plan = self.plan
  local hold_seconds = self.acquired_at + plan.min_hold - core.now()
  local pid, failure, errno =
    process.spawn(plan.argv, plan.environment, self.wants_terminal, plan.uuid, hold_seconds)
  if not pid then return nil, { error = failure, errno = errno } end
  self.pid, self.started_at = pid, core.now()
  self.check_at = self.started_at + FIRST_CHECK
  self.runs_until = self.started_at + (plan.max_runtime or math.huge)
  plan.on_started(pid)
  return true
end

-- Runs a job. The fields of `plan`:
--   argv, environment, lease, grace, min_hold, max_runtime or nil
--   keeps      whether to hold the lock while a process that a signal did not reach is running
--   uuid       the uuid of the client whose process record becomes the job's, or nil
--   tick()     called at each check, or nil
--   on_started(pid), on_ended(how, number), on_signal(name, sent)
--   on_lost(reason, left, "unstarted" | "ending" | "partly" | "running")
--   on_overdue(…), on_no_terminal(…): "ending" | "partly" | "running"
--   on_refused(pids, name of the signal, or nil at a check)
-- → { how = "exit" | "signal" | "gone", number, lost = reason or nil, overdue = whether it ran for
--   max_runtime, held_until = when min_hold ends }; if it was not started, { lost = reason },
--   { signal = name } for a signal before the start, or { error = message, errno }
function job.run(lock, plan)
  local acquired_at = core.now()
  local name = signals.next_terminating()
  if name then return { signal = name } end
  signals.catch_all()
  local terminal = process.open_terminal()
  local slack = clamp(plan.lease / 50, 0.01, 0.1)
  local self = setmetatable({
    lock = lock, plan = plan, acquired_at = acquired_at, terminal = terminal,
    wants_terminal = terminal and is_alone_in_foreground(),
    slack = slack, period = period_of(plan),
    reserve = math.min(plan.grace, plan.lease / 3) + slack,
  }, Job)
  local started, result = self:start()
  if not started then return result end
  self:watch()
  return {
    how = self.how, number = self.number, lost = self.lost, overdue = self.overdue,
    held_until = acquired_at + plan.min_hold,
  }
end

-- Holds the lock for the rest of min_hold after the job has ended, unless the lock is lost or a
-- signal arrives that would end the job. The caller must record the job's end first: otherwise,
-- after a crash during this time, a later run would find an unfinished job.
function job.stay(lock, plan, result)
  if not result.how or result.lost then return end
  while core.now() < result.held_until and not lock:lost() do
    if plan.tick then plan.tick() end
    local name = process.wait(clamp(result.held_until - core.now(), 0, period_of(plan)))
    if name and not signals.harmless[name] then return end
  end
end

return job
