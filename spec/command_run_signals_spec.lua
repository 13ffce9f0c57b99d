-- holdfast run: signals to it and to its job.

local command = require "spec.support.command"
local jobs = require "spec.support.jobs"
local process = require "spec.support.process"

local ENDS_WITH_PARENT, PATIENCE, SIGNALS = jobs.ENDS_WITH_PARENT, jobs.PATIENCE, jobs.SIGNALS
local eventually, exits, is_free = jobs.eventually, jobs.exits, jobs.is_free
local is_gone, job, sees, server = jobs.is_gone, jobs.job, jobs.sees, jobs.server
local start_job, start_unread, state = jobs.start_job, jobs.start_unread, jobs.state
local stop = jobs.stop
local unpack = table.unpack or unpack

describe("holdfast run", function()
  before_each(jobs.open)
  after_each(jobs.close)

  describe("on signals", function()
    it("forwards each signal to the job's process group", function()
      local traps = {}
      for name in pairs(SIGNALS) do
        if name ~= "TSTP" then traps[#traps + 1] = ("trap 'echo got %s' %s"):format(name, name) end
      end
      local child, pid = start_job({ "run", "k" },
        table.concat(traps, "; ") .. "; echo set; while :; do sleep 0.05; done")
      sees(child, "set")
      for name, number in pairs(SIGNALS) do
        if name ~= "TSTP" then
          child:kill(number)
          assert(child:wait_output("got " .. name .. "\n", PATIENCE), name)
        end
      end
      child:stop()
      if not ENDS_WITH_PARENT then process.signal(pid, "KILL") end
      eventually(function() return is_gone(pid) end)
    end)

    it("forwards signals even if nobody reads its output", function()
      local child, pid, parent = start_unread("-v")
      process.signal(parent, "TERM")
      eventually(function() return is_gone(pid) end)
      exits(child, 143)
    end)

    it("stops and continues the job, and renews the lock while it is stopped", function()
      local child, pid = start_job({ "run", "--lease", "4", "k" }, "exec sleep 60")
      child:kill(SIGNALS.TSTP)
      eventually(function() return state(pid) == "T" end)
      local last, rises = 0, 0
      eventually(function() -- renewals outlast the lease
        local ttl = server:cli("PTTL", "k")
        if ttl > last then rises = rises + 1 end
        last = ttl
        return rises == 4
      end)
      child:kill("CONT")
      eventually(function() return state(pid) == "S" end)
      stop(child, 143)
    end)

    it("ends a stopped job on TERM or HUP", function()
      for _, name in ipairs { "TERM", "HUP" } do
        local child, pid = start_job({ "run", "k" }, "exec sleep 60")
        child:kill(SIGNALS.TSTP)
        eventually(function() return state(pid) == "T" end)
        stop(child, 128 + SIGNALS[name], SIGNALS[name])
      end
    end)

    it("continues to ignore a signal that was already ignored when it started", function()
      local script = command.shell_prelude(server) .. "\ntrap '' HUP ALRM\nholdfast run k -- sh -c '"
        .. job("kill -HUP $PPID; kill -HUP $$; kill -ALRM $$; echo alive") .. "'"
      local child = command.other { "sh", "-c", script }
      exits(child, 0)
      assert.matches("alive", child:output())
    end)

    it("exits with the job's code even if SIGCHLD was ignored", function()
      local words = command.words("run", "k", "-c", "exit 7")
      local child = process.start { env = command.environment(server),
        "env", "--ignore-signal=CHLD", unpack(words) }
      exits(child, 7)
    end)

    it("kills the job when it is killed itself, and the lock ends with its lease", function()
      local child, pid = start_job({ "run", "--lease", "4", "k" }, "exec sleep 60")
      child:kill("KILL")
      assert.same({ "signal", 9 }, { child:wait(PATIENCE) })
      if not ENDS_WITH_PARENT then process.signal(pid, "KILL") end
      eventually(function() return is_gone(pid) end)
      eventually(is_free)
    end)
  end)
end)
