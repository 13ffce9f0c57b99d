-- After a crash of holdfast run, the lock stays held while a process of the job lives that has left
-- the group, closed the descriptor and changed its environment, if the user cannot read this
-- process: see docs/explanation/crash.md. Root can read every process, so these jobs belong to
-- another user, and only root can set that up.

local adopted = require "spec.support.adopted"
local command = require "spec.support.command"
local files = require "spec.support.files"
local process = require "spec.support.process"
local sys = require "spec.support.sys"

local LOOKS = "2" -- seconds; in this time a waiter looks many times
local SOON = "20" -- seconds; the lease is 30
local USER = tostring(1900000000 + sys.getpid())
local AS_USER = { "setpriv", "--reuid", USER, "--regid", USER, "--clear-groups" }

-- Starts a process without any mark of the job, and waits for it.
local JOB = [[
  (
    for path in /proc/self/fd/*; do
      fd=${path##*/}
      [ $fd -le 2 ] || eval "exec $fd>&-"
    done
    exec setsid env -i %s 60
  ) &
  echo survivor $! holds
  wait
]]

-- Each makes a copy of sleep that users may run but not read.
local MAKERS = {
  { "is of mode 0711", "chmod 0711" },
  { "is setuid", "chmod 4755" },
  { "is setgid", "sh -c 'chgrp 1 $0 && chmod 2755 $0'" },
  { "has file capabilities", "setcap cap_net_bind_service+ep" },
}

-- Runs its words with an /etc/passwd that has the user, and an /etc/sudoers that allows this user
-- everything, in a new mount namespace.
local WITH_SUDO = [[
  mount --bind "$0/passwd" /etc/passwd && mount --bind "$0/sudoers" /etc/sudoers && exec "$@"
]]

local function run(text, ...)
  return process.succeeds(("(%s) >/dev/null 2>&1"):format(text:format(...)))
end

local function run_as_user(text, ...)
  return run("%s %s", table.concat(AS_USER, " "), text:format(...))
end

-- → why these specs cannot run here, or nil
local function obstacle()
  if not run "test $(id -u) = 0 && command -v setpriv" then return "needs root and setpriv" end
  if not run_as_user("%s -e 'require \"holdfast.core\"'", sys.interpreter()) then
    return "needs sources that other users can read"
  end
end

local write = files.write

local read = files.read

describe("a crash of holdfast run whose job continues in a process that #check", function()
  local world = require("spec.support.world").new { tcp = true }
  local directory, survivor

  before_each(function()
    world.open()
    directory, survivor = process.directory(), nil
    assert(run("chmod 755 %s", directory))
  end)

  after_each(function()
    if survivor then
      process.signal(survivor, "TERM") -- sudo ends its command
      process.signal(-survivor, "KILL")
    end
    world.cli("DEL", "k")
    process.remove(directory)
    world.close()
    process.remove("/dev/shm/holdfast-" .. USER)
  end)

  local function words(under, ...)
    local env = { HOLDFAST_CONFIG = "/dev/null", HOLDFAST_URL = world.server:tcp_url() }
    return { under = under, env = env, ... }
  end

  -- Starts a job that runs `program`, whose process is called `name`, and kills all of the job but
  -- this process.
  local function crash(name, program, under)
    local run_it = words(under or AS_USER, "run", "k", "--", "bash", "-c", JOB:format(program))
    local child, pid = adopted.start(world.server, run_it)
    world.children[#world.children + 1] = child
    assert(child:wait_output("holds"), child:output())
    survivor = tonumber(child:output():match("survivor (%d+)"))
    assert(process.wait_until(function()
      return read(("/proc/%d/comm"):format(survivor)) == name .. "\n"
    end), child:output())
    process.signal(pid, "KILL")
    assert(process.wait_until(function() return not process.signal(pid, 0) end), child:output())
  end

  -- → the code and the output of a run that waits
  local function wait_for(seconds)
    return command.run(nil, words(AS_USER, "run", "-v", "-w", seconds, "k", "--", "true"))
  end

  local function assert_kept()
    assert.is_false(run_as_user("cat /proc/%d/environ", survivor), "it can be read")
    local code, output = wait_for(LOOKS)
    assert.equal(1, code, output)
    assert.not_matches("has crashed", output)
    assert(process.signal(survivor, 0))
  end

  local function test(name, check)
    it(name, function()
      local why = obstacle()
      if why then return pending(why) end
      check()
    end)
  end

  -- Without this test, the others would prove nothing.
  test("can be inspected and is not part of the job frees the lock", function()
    crash("sleep", "$(command -v sleep)")
    local code, output = wait_for(SOON)
    assert.equal(0, code, output)
    assert.matches("its holder has crashed", output)
  end)

  for _, each in ipairs(MAKERS) do
    local name, maker = each[1], each[2]
    test(name .. " keeps the lock", function()
      local program = directory .. "/hidden"
      assert(run("cp $(command -v sleep) %s", program))
      if not run("%s %s", maker, program) then return pending("needs " .. maker:match("%S+")) end
      crash("hidden", program)
      assert_kept()
    end)
  end

  test("is sudo keeps the lock", function()
    if not run "command -v sudo" then return pending "needs sudo" end
    write(directory .. "/passwd", read "/etc/passwd" .. ("spec:*:%s:%s::/:/bin/sh\n"):format(USER, USER))
    write(directory .. "/sudoers", "spec ALL=(ALL) NOPASSWD: ALL\n")
    assert(run("chmod 440 %s/sudoers", directory))
    local under = { "unshare", "-m", "sh", "-c", WITH_SUDO, directory }
    for _, word in ipairs(AS_USER) do under[#under + 1] = word end
    crash("sudo", "$(command -v sudo) -n $(command -v sleep)", under)
    assert_kept()
  end)
end)
