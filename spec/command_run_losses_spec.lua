-- holdfast run whose lock is lost while the job runs.

local jobs = require "spec.support.jobs"
local process = require "spec.support.process"

local eventually, exists, exits, file = jobs.eventually, jobs.exists, jobs.exits, jobs.file
local in_time, is_gone, read, server = jobs.in_time, jobs.is_gone, jobs.read, jobs.server
local start_job, start_unread = jobs.start_job, jobs.start_unread

describe("holdfast run", function()
  before_each(jobs.open)
  after_each(jobs.close)

  describe("on a loss", function()
    it("ends the job with TERM, and says why", function()
      local child, pid = start_job({ "run", "--lease", "9", "k" },
        "trap 'echo ending; exit 0' TERM; while :; do sleep 0.05; done")
      server:cli("FLUSHALL")
      exits(child, 75)
      assert.matches('lost the lock "k": its key was deleted on the server; stopping the job\n',
        child:output(), 1, true)
      assert.matches("ending\n", child:output())
      assert.is_true(is_gone(pid))
    end)

    it("ends the job even if nobody reads its output", function()
      local child, pid = start_unread("")
      server:cli("DEL", "k")
      eventually(function() return is_gone(pid) end)
      exits(child, 75)
    end)

    it("reports how the job ended, and kills the rest of its process group", function()
      local child = start_job({ "run", "--lease", "5", "--grace", "0.3", "--json", "k" },
        "sh -c 'trap \"\" TERM; echo $$ >" .. file "left" .. "; exec sleep 60' & exec sleep 60")
      local left = eventually(function() return tonumber(read(file "left")) end)
      server:cli("FLUSHALL")
      exits(child, 75)
      assert.matches('"event":"ended","time":"[^"]+","signal":15}', child:output())
      eventually(function() return is_gone(left) end)
    end)

    it("ends the job before another owner can acquire the lock", function()
      in_time(5, function()
        local child, pid = start_job({ "run", "--lease", "5", "--grace", "60", "k" },
          "trap '' TERM; while :; do sleep 0.05; done")
        server:kill("STOP")
        local stopped = process.now()
        eventually(function() return is_gone(pid) end)
        local took = process.now() - stopped
        server:kill("CONT")
        exits(child, 75)
        assert.matches("it could not be renewed", child:output())
        return took
      end)
    end)

    -- Runs a job under a fake lock, which reports `lost`, and `left` seconds counted from the
    -- start.
    -- → what the job's callbacks and its result contain
    local function under(lost, left, argv)
      local child = process.lua { args = argv, code = ([[
        local core, job = require "holdfast.core", require "holdfast.command.job"
        local till = core.now() + %s
        local lock = { lost = function() return %s end,
          remaining = function() return till - core.now() end }
        local function ignore() end
        local result = job.run(lock, {
          argv = arg, environment = {}, lease = 10, grace = 0, min_hold = 0,
          on_started = ignore, on_signal = ignore, on_ended = ignore,
          on_lost = function(reason, left) print(reason, left) end,
        })
        print("result", result.how, result.lost)
      ]]):format(left, lost) }
      exits(child, 0)
      return child:output()
    end

    it("does not start the job if the lock is lost before the start", function()
      for _, case in ipairs { { '"deleted"', 5, "deleted" }, { "nil", 0.05, "unreachable" } } do
        local result = under(case[1], case[2], { "touch", file "ran" })
        assert.matches(("^%s\t%%S+\nresult\tnil\t%s\n$"):format(case[3], case[3]), result)
        assert.is_false(exists(file "ran"))
      end
    end)

    it("exits with 75 if the loss is discovered only at the release", function()
      local child = start_job({ "run", "k" }, "redis-cli -s " .. server.path
        .. " del k >/dev/null; exit 0")
      exits(child, 75)
      assert.matches("holdfast run: [^\n]*deleted", child:output())
    end)
  end)
end)
