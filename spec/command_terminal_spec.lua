-- The command and its jobs on a terminal.

local command = require "spec.support.command"
local jobs = require "spec.support.jobs"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local terminal = require "spec.support.terminal"

local PATIENCE, eventually, file = jobs.PATIENCE, jobs.eventually, jobs.file
local is_free, read, server = jobs.is_free, jobs.read, jobs.server
local write, write_lock = jobs.write, jobs.write_lock

describe("on a terminal", function()
  if not terminal.is_there() then return pending("there is no tmux") end

  local shell

  local function screen() return shell:screen() end
  local function sees(pattern) shell:sees(pattern) end
  local function types(...) shell:types(...) end

  -- The job reads the typed line, and prints it. A line that comes while the shell still changes
  -- the terminal's mode is delivered with the next Enter, and may not be echoed.
  local function gets_words()
    local seen, typed = nil, 0
    types("words", "Enter")
    process.wait_until(function()
      seen = screen()
      if seen:find("went on\n+code %d") then return true end
      typed = typed + 1
      if typed % 100 == 0 then types("Enter") end
    end, PATIENCE)
    assert.matches("words\n+went on\n+code 0\n", seen)
  end

  -- The job's own child sleeps: a shell may miss a key that is typed between its fork and its exec.
  local function is_there(name, states)
    local tty = shell:tmux("display", "-p", "-t", "spec", "#{pane_tty}"):match("pts/%d+")
    local list = command.other { "pgrep", "-x", "-r", states, "-t", tty, name }
    return select(2, list:wait(PATIENCE)) == 0
  end

  local function sleeps(name) eventually(function() return is_there(name, "S") end) end

  before_each(function()
    jobs.open()
    shell = terminal.open(command.shell_prelude(server), 100, 20)
  end)
  after_each(function()
    shell:close()
    jobs.close()
  end)

  -- Types a line that prints the exit code of the command.
  local function enter(line) types(line .. "; echo code $?", "Enter") end

  -- No parent of the group could give it the terminal or continue it.
  for name, job in pairs {
    ["reads the terminal"] = "cat /dev/tty",
    ["reads the terminal again and again"] = "trap '' HUP; while :; do cat /dev/tty; done",
  } do
    it("a job that " .. name .. " ends, with its lock, if no shell can give it the terminal", function()
      types("(holdfast run --grace 0.1 k -c \"" .. job .. "\" &)", "Enter")
      sees("holdfast run: the job waits for the terminal, which no shell is left to give")
      eventually(is_free)
    end)
  end

  it("a script gets the terminal back once its job has ended", function()
    types("(holdfast run k -- head -n 1; head -n 1; echo both)", "Enter")
    sleeps("head")
    types("words", "Enter")
    sees("words\nwords\n")
    eventually(is_free)
    sleeps("head")
    types("more", "Enter")
    sees("more\nmore\nboth\n")
  end)

  -- The shell would read what is typed before the job runs.
  local READS = "sh -c 'echo rea''dy; head -n 1; echo went on'"

  it("the job can read from the terminal", function()
    enter("holdfast run k -- " .. READS)
    sleeps("head")
    gets_words()
  end)

  it("Ctrl-C ends the job", function()
    enter("holdfast run k -- sh -c 'echo rea''dy; sleep 60'")
    sleeps("sleep")
    types("C-c")
    sees("code 130")
    assert.is_true(is_free())
  end)

  it("a job that lost its lock is ended even if `stty tostop` stops background output", function()
    enter("stty tostop; holdfast run --lease 9 k -- sleep 60")
    sleeps("sleep")
    server:cli("DEL", "k")
    sees("lost the lock.*code 75")
  end)

  it("a job that lost its lock is ended even while Ctrl-S holds back output", function()
    enter("holdfast run --lease 9 k -- sleep 60")
    sleeps("sleep")
    types("C-s")
    server:cli("DEL", "k")
    eventually(function() return not is_there("sleep", "S,R,D,T") end)
    types("C-q")
    sees("code 75")
  end)

  it("a job that cannot start gives the terminal back", function()
    enter("holdfast run k -- /no/such/command")
    sees("cannot start.*code 127")
    assert.is_true(is_free())
  end)

  it("break frees a quorum's lock on each server that has it under the owner or one of its copies", function()
    local servers, urls = { server }, {}
    for i = 2, 5 do servers[i] = redis.start() end
    finally(function() for i = 2, 5 do servers[i]:stop() end end)
    for i, suffix in ipairs { "", ".1", "", ".12", "3" } do
      servers[i]:cli("HSET", "k", "b983c153-7421-869a-addb-44fb92259a1b:1" .. suffix, 1)
      servers[i]:cli("PEXPIRE", "k", 60000)
      if i ~= 2 then servers[i]:cli("SET", "redisson_lock_token:{k}", 8) end
    end
    for i, one in ipairs(servers) do urls[i] = one:url() end
    enter("holdfast break --servers " .. table.concat(urls, ",") .. " k")
    sees("Break the lock")
    types("y", "Enter")
    sees("k: broken.*code 0")
    for i, one in ipairs(servers) do assert.equal(i < 5 and 0 or 1, one:cli("EXISTS", "k")) end
  end)

  it("break does not free a lock that changed hands after the user was asked", function()
    write_lock "k"
    enter("holdfast break k")
    sees("b983c153.*Break the lock")
    server:cli("HDEL", "k", "b983c153-7421-469a-addb-44fb92259a1b:1")
    write_lock("k", "c983c153-7421-469a-addb-44fb92259a1b:1")
    types("y", "Enter")
    sees("changed hands.*code 1")
    assert.is_false(is_free())
    enter("holdfast break k")
    sees("c983c153.*Break the lock")
    server:cli("SET", "redisson_lock_token:{k}", 8) -- the same owner has acquired it again
    types("y", "Enter")
    sees("changed hands.*changed hands.*code 1")
    enter("clear; holdfast break k")
    sees("^The lock.*c983c153.*Break the lock") -- the earlier question may still be on the screen
    types("y", "Enter")
    sees("k: broken.*code 0")
    assert.is_true(is_free())
  end)

  it("break does not open a latch that was set again or counted down after the user was asked", function()
    local gate = jobs.own():latch "gate"
    for _, count in ipairs { 3, 1 } do
      assert(gate:set(2))
      local waiter = jobs.start { "latch", "wait", "gate" }
      eventually(function() return jobs.output_of { "show", "gate" }:find("waiters  1", 1, true) end)
      enter("clear; holdfast break gate")
      sees("^The latch \"gate\" still has a count of 2; .*Open it")
      assert(gate:delete())
      jobs.exits(waiter, 0)
      assert(gate:set(count))
      types("y", "Enter")
      sees("count of the latch \"gate\" has changed.*code 1")
      assert.equal(count, gate:count())
      assert(gate:delete())
    end
  end)

  it("break reports a lock as free if it was released while the user was asked", function()
    write_lock "k"
    enter("holdfast break k")
    sees("b983c153.*Break the lock")
    server:cli("DEL", "k")
    types("y", "Enter")
    sees("k: was free\ncode 1")
  end)

  it("Ctrl-Z stops a run and fg continues it, with its lock still held", function()
    enter("holdfast run k -- " .. READS)
    sleeps("head")
    types("C-z")
    sees("Stopped")
    assert.is_false(is_free())
    enter("fg >/dev/null")
    sleeps("head")
    gets_words()
    assert.is_true(is_free())
  end)

  it("Ctrl-Z also stops the job's child processes, even those that ignore TSTP", function()
    local path = file "pid"
    enter(("holdfast run k -c 'trap \"\" TSTP; sleep 60 & echo $! >%s; trap - TSTP; wait'"):format(path))
    sleeps("sleep")
    types("C-z")
    sees("Stopped")
    local pid = tonumber(read(path))
    eventually(function() return read(("/proc/%d/stat"):format(pid)):find(") T ", 1, true) end)
    enter("fg >/dev/null")
    sleeps("sleep")
    process.signal(pid, "KILL")
    sees("code 0")
  end)

  it("Ctrl-Z stops a whole pipeline, although only the job has the terminal", function()
    types("holdfast run k -- " .. READS .. " | cat; echo code $?", "Enter")
    sleeps("head")
    types("C-z")
    sees("Stopped")
    enter("fg >/dev/null")
    sleeps("head")
    gets_words()
  end)

  it("a job stopped for longer than its lease is ended when it is continued", function()
    enter("holdfast run --lease 4 k -- sh -c 'echo rea''dy; head -n 1; echo went on'")
    sleeps("head")
    types("C-z")
    sees("Stopped")
    eventually(is_free)
    enter("fg >/dev/null")
    sees("lost the lock.*code 75")
  end)

  it("a background job stops when it reads the terminal, and fg gives it the terminal", function()
    types("set -b; holdfast run k -- " .. READS .. " &", "Enter")
    sees("Stopped")
    enter("fg >/dev/null")
    sleeps("head")
    gets_words()
  end)

  it("a job gets the terminal at its start if its input and output are the terminal", function()
    local place = write(file "place", [[
      set -- $(ps -o tpgid=,pgid= -p $$)
      [ "$1" = "$2" ] && echo in front || echo behind
    ]])
    -- in a pipe, the shell's function would run in its own process
    local line = ("'%s' run k -- sh %s"):format(table.concat(command.words(), "' '"), place)
    for i, case in ipairs { { "", "in front" }, { " | cat", "behind" }, { " </dev/null", "behind" } } do
      types(("clear; %s%s; echo code %d"):format(line, case[1], i), "Enter")
      sees(("\n?%s\ncode %d\n"):format(case[2], i))
    end
  end)

  it("a job in a script or pipeline gets the terminal when it reads", function()
    types("(holdfast run k -- " .. READS .. "; echo code $?) | cat", "Enter")
    sleeps("head")
    gets_words()
  end)

  it("ls and deadlocks say so if they have nothing to list", function()
    types("holdfast ls; holdfast deadlocks; holdfast ls | wc -c", "Enter")
    sees("\nno locks\nno deadlocks\n0\n")
  end)
end)
