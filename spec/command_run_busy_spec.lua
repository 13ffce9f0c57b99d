-- holdfast run while others hold the lock or wait for it.

local command = require "spec.support.command"
local jobs = require "spec.support.jobs"
local process = require "spec.support.process"

local SIGNALS, eventually = jobs.SIGNALS, jobs.eventually
local exists, exits, file, hold = jobs.exists, jobs.exits, jobs.file, jobs.hold
local lines_of, name_of, read, run = jobs.lines_of, jobs.name_of, jobs.read, jobs.run
local says, server, start, stop = jobs.says, jobs.server, jobs.start, jobs.stop

local CROWD_PATIENCE = 120 -- seconds; many processes start

describe("holdfast run", function()
  before_each(jobs.open)
  after_each(jobs.close)

  describe("on a busy lock", function()
    local lock

    before_each(function() lock = hold "k" end)

    -- Starts a run, which waits when this returns.
    local function start_waiting(words)
      local before, child = lock:info().waiters, start(words)
      eventually(function() return lock:info().waiters == before + 1 end)
      return child
    end

    it("exits with 1 or the code of -E, at once with -n or after -w", function()
      for _, words in ipairs { { "-n" }, { "-w", "1" }, { "-w0" }, { "--wait=1" } } do
        local code, output = command.run_out(server,
          { "run", words[1], words[2] or "--lease=30", "k", "--", "touch", file "ran" })
        assert.equal(1, code)
        assert.matches('^holdfast run: cannot acquire "k" [^\n]+\n$', output)
      end
      assert.equal(9, (run { "run", "-nE9", "k", "--", "touch", file "ran" }))
      assert.equal(0, (run { "run", "-n", "-E", "0", "k", "--", "touch", file "ran" }))
      assert.is_false(exists(file "ran"))
    end)

    it("names the holder, even with -n", function()
      eventually(function() return lock:info().host end)
      local host, pid = lock:info().host:gsub("%p", "%%%0"), lock:info().pid
      says(1, ("held by %s %%(pid %d%%) for "):format(host, pid), { "run", "-n", "k", "--", "true" })
      says(1, ('"host":"%s","pid":%d,"held_for":'):format(host, pid),
        { "run", "-n", "--json", "free", "k", "--", "true" })
    end)

    it("prints nothing with -E 0 or -q", function()
      for _, words in ipairs {
        { "-n", "-E", "0" }, { "-w", "1", "-E", "0" }, { "-n", "-q" }, { "-nqE9" },
        { "-w0", "--quiet", "-E0" },
      } do
        table.insert(words, 1, "run")
        for _, word in ipairs { "k", "--", "echo", "ran" } do words[#words + 1] = word end
        assert.equal("", (select(2, command.run_out(server, words))))
      end
      says(0, '^{"event":"error".*"code":"busy","exit":0[,}]',
        { "run", "-n", "-E0", "--json", "k", "--", "true" })
      says(0, "^holdfast run: cannot acquire", { "run", "-n", "-E0", "-v", "k", "--", "true" })
      says(64, 'usage"', { "run", "-q", "--json", "k" })
      says(69, "^[^\n]+\n$", { "run", "-q", "--url", "unix:///no/such.sock", "k", "--", "true" })
    end)

    it("extends a granted lock to its full lease before the job starts", function()
      local child = start_waiting { "run", "--lease", "40", "k", "--", "redis-cli", "-s", server.path,
        "pttl", "k" }
      assert(lock:release())
      exits(child, 0)
      assert.is_true(tonumber(child:output()) > 20000)
    end)

    for _, name in ipairs { "TERM", "INT", "HUP", "USR1" } do
      it("leaves the queue when " .. name .. " ends its wait", function()
        local child = start_waiting { "run", "k", "--", "touch", file "ran" }
        local published = eventually(function() return name_of(child) end)
        stop(child, 128 + SIGNALS[name], SIGNALS[name])
        assert.equal(0, lock:info().waiters)
        assert.equal(0, server:cli("EXISTS", published))
        assert.is_false(exists(file "ran"))
      end)
    end

    it("-v says that the job was not started when a signal ends the wait", function()
      for option, expected in pairs {
        ["-v"] = "^holdfast run: terminated by TERM before anything was started\n$",
        ["--json"] = '^{"event":"signal","time":"[^"]+","signal":"TERM"}\n$', ["--lease=30"] = "^$",
      } do
        local child = start_waiting { "run", option, "k", "--", "true" }
        stop(child, 143)
        local said = child:output():gsub('[^\n]*crash[_ ]release[^\n]*\n', ""):gsub('{"event":"waiting"[^\n]*\n', "")
        assert.matches(expected, (said:gsub("holdfast run: waiting for[^\n]*\n", "")))
      end
    end)
  end)

  it("started by ten hosts with one crontab runs on only one of them, and prints nothing on the others", function()
    for _ = 1, 2 do
      local hosts = {}
      for i = 1, 10 do
        hosts[i] = start { "run", "-n", "-E", "0", "--min-hold", "60", "--name", "nightly",
          "jobs:backup", "-c", "echo x >>" .. file "runs" }
      end
      local left
      eventually(function()
        left = {}
        for _, host in ipairs(hosts) do
          if not host:status() then left[#left + 1] = host end
        end
        return #left == 1 and lines_of(read(file "runs")) > 0
      end)
      left[1]:kill("TERM")
      for _, host in ipairs(hosts) do
        exits(host, 0)
        assert.equal("", host:output())
      end
      assert.equal("x\n", read(file "runs"))
      os.remove(file "runs")
    end
  end)

  it("started 20 times at once runs its jobs one at a time, in order of arrival", function()
    local lock = hold "k"
    local script = ("mkdir IN || echo overlap >>ORDER; echo $0 >>ORDER; rmdir IN")
      :gsub("IN", file "in"):gsub("ORDER", file "order")
    local children, expected = {}, {}
    for i = 1, 20 do
      children[i] = start { "run", "k", "--", "sh", "-c", script, ("%d"):format(i) }
      expected[i] = ("%d\n"):format(i)
      assert(process.wait_until(function() return lock:info().waiters == i end, CROWD_PATIENCE))
    end
    assert(lock:release())
    for i = 1, 20 do assert.same({ "exit", 0 }, { children[i]:wait(CROWD_PATIENCE) }) end
    assert.equal(table.concat(expected), read(file "order"))
  end)
end)
