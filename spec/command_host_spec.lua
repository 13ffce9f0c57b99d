-- What the host does to holdfast: jobs that become another user, limits, containers. The specs with
-- other users need root, as in CI: a setuid root program plays sudo.

local command = require "spec.support.command"
local files = require "spec.support.files"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local sys = require "spec.support.sys"

local PATIENCE = 40
local NOBODY = "setpriv --reuid=65534 --clear-groups"

local eventually = process.eventually

local function shell(text)
  local child = command.other { "sh", "-ec", text }
  assert.same({ "exit", 0 }, { child:wait(PATIENCE) }, child:output())
  return child:output()
end

local function can(text)
  local child = command.other { "sh", "-ec", text .. " >/dev/null 2>&1" }
  return select(2, child:wait(PATIENCE)) == 0
end

local read = files.read_any

local function runs(pid)
  local state = read(("/proc/%d/stat"):format(pid)):match("%) (%a)")
  return state ~= nil and state ~= "Z"
end

local server

setup(function() server = redis.start { tcp = true } end)
teardown(function() server:stop() end)
before_each(function() server:cli("FLUSHALL") end)

local function is_held() return server:cli("EXISTS", "k") == 1 end

describe("holdfast run of a job that becomes another user", function()
  local directory, sudo, program, children

  setup(function()
    directory, children = process.directory(), {}
    sudo, program = directory .. "/sudo", directory .. "/bin/holdfast"
    local version = _VERSION:match("%d%.%d")
    shell(([[
      cp "$(command -v setpriv)" '%s'; chmod 4755 '%s'
      cd '%s'; mkdir -p bin share/lua lib/lua; cd - >/dev/null
      cp bin/holdfast '%s/bin'; cp -r lua '%s/share/lua/%s'; cp -r '%s/%s' '%s/lib/lua/%s'
      chmod -R a+rX '%s'; chmod 4755 '%s'
    ]]):format(sudo, sudo, directory, directory, directory, version, process.build, process.flavour,
      directory, version, directory, sudo))
  end)
  teardown(function() process.remove(directory) end)
  after_each(function()
    for _, child in ipairs(children) do child:stop() end
    children = {}
  end)

  local function it_as_root(name, body)
    it(name, function()
      if not can("[ $(id -u) = 0 ] && [ $(" .. NOBODY .. " " .. sudo .. " --reuid=0 id -ru) = 0 ]") then
        return pending("needs root, and a file system that allows setuid programs")
      end
      body()
    end)
  end

  -- Starts holdfast as a user who is not root. In `job`, SUDO is a program that becomes root,
  -- prints its process id, and executes the words that follow.
  local function start(subcommand, options, job)
    local as_root = sudo .. " --reuid=0 --clear-groups sh -c 'echo job $$; exec \"$0\" \"$@\"'"
    local child = process.start {
      "setsid", "sh", "-c", ("exec %s '%s' '%s' %s %s k -c \"$JOB\""):format(NOBODY, sys.interpreter(),
        program, subcommand, options),
      env = command.environment(server, {
        HOME = "/nonexistent", HOLDFAST_URL = server:tcp_url(), HOLDFAST_CONFIG = "/dev/null",
        JOB = (job:gsub("SUDO", function() return as_root end)),
      }),
    }
    children[#children + 1] = child
    return child, tonumber((assert(child:wait_output("job (%d+)\n", PATIENCE), child:output())))
  end

  local function refused(pid, name)
    return ('"event":"refused","time":"[^"]+","message":"the job.s process %d [^"]+sudo holdfast %%l+ …%%)","pid":%d,"count":1%s}')
      :format(pid, pid, name and ',"signal":"' .. name .. '"' or "")
  end

  it_as_root("is reported at its start as one that cannot be signalled, and after a loss as still running", function()
    local child, pid = start("run", "--json --lease 4 --grace 0.1", "exec SUDO sleep 60")
    assert(child:wait_output(refused(pid), PATIENCE), child:output())
    child:kill("TERM")
    assert(child:wait_output(refused(pid, "TERM"), PATIENCE), child:output())
    server:cli("DEL", "k")
    assert(child:wait_output(refused(pid, "KILL"), PATIENCE), child:output())
    assert.matches("deleted on the server; the job keeps running\"", child:output(), 1, true)
    assert.not_matches("stopping the job", child:output(), 1, true)
    assert.not_matches('"event":"signal"', child:output(), 1, true)
    assert.is_true(runs(pid))
    process.signal(pid, "KILL")
    assert.same({ "exit", 75 }, { child:wait(PATIENCE) })
  end)

  it_as_root("is found among the processes of its group, whatever their names and states", function()
    local code = [[
      local process = require "holdfast.process"
      local group = tonumber(os.getenv "GROUP")
      print(table.concat(process.out_of_reach(group, true), " "))
      print(table.concat(process.out_of_reach(group, false), " "))
      print(#process.out_of_reach(tonumber(os.getenv "MEMBER"), true), process.exists(-group), process.kill(-group, "WINCH"))
    ]]
    local odd = directory .. "/a) T 1 7 (b"
    shell(("cp \"$(command -v sleep)\" '%s'"):format(odd))
    local leader = process.start { "setsid", "sh", "-c",
      "'" .. odd .. "' 60 & echo $!; sleep 60 & echo $!; kill -STOP $!; exec sleep 60" }
    children[#children + 1] = leader
    local named, stopped = (assert(leader:wait_output("%d+\n%d+\n", PATIENCE))):match("(%d+)\n(%d+)")
    finally(function()
      process.signal(tonumber(named), "KILL")
      process.signal(tonumber(stopped), "KILL")
    end)
    local function state(pid) return read(("/proc/%d/stat"):format(pid)):match("%) (%a) %d+ %d+ %d+ ") end
    eventually(function()
      return state(stopped) == "T" and read(("/proc/%d/comm"):format(named)) == "a) T 1 7 (b\n"
        and read(("/proc/%d/comm"):format(leader.pid)) == "sleep\n"
    end)
    local version = _VERSION:match("%d%.%d")
    local looker = process.start { "sh", "-c", ("exec %s '%s' -e \"$CODE\""):format(NOBODY, sys.interpreter()),
      env = { CODE = code, GROUP = tostring(leader.pid), MEMBER = named, LUA_INIT = false,
        LUA_PATH = ("%s/share/lua/%s/?.lua;%s/share/lua/%s/?/init.lua"):format(directory, version, directory, version),
        LUA_CPATH = ("%s/lib/lua/%s/?.so"):format(directory, version) } }
    assert.same({ "exit", 0 }, { looker:wait(PATIENCE) }, looker:output())
    local function sorted(line)
      local list = {}
      for pid in line:gmatch("%d+") do list[#list + 1] = tonumber(pid) end
      table.sort(list)
      return list
    end
    local first, second, rest = looker:output():match("^([^\n]*)\n([^\n]*)\n(.*)$")
    assert.same(sorted(("%d %s %s"):format(leader.pid, named, stopped)), sorted(first))
    assert.same(sorted(("%d %s"):format(leader.pid, named)), sorted(second))
    assert.matches("^0\ttrue\tnil\t", rest)
  end)

  -- The case of runuser and setpriv, which keep HOME.
  it_as_root("causes a hint if the settings file is in a home directory that the other user may not enter", function()
    local home = directory .. "/home"
    shell(("mkdir -m 700 '%s'"):format(home))
    local child = process.start {
      "sh", "-c", ("exec %s '%s' '%s' run k -- true"):format(NOBODY, sys.interpreter(), program),
      env = command.environment(server, {
        HOME = home, HOLDFAST_CONFIG = false, XDG_CONFIG_HOME = false,
        HOLDFAST_URL = server:tcp_url(),
      }),
    }
    assert.same({ "exit", 64 }, { child:wait(PATIENCE) }, child:output())
    assert.equal(("holdfast run: cannot read %s/.config/holdfast.conf: Permission denied; set HOME to the home of the "
      .. "user who runs the command, or HOLDFAST_CONFIG to a settings file (/dev/null: none)\n"):format(home),
      child:output())
  end)

  it_as_root("causes no message without -v until a signal to it fails", function()
    local child, pid = start("run", "", "exec SUDO sh -c 'sleep 0.2; echo slept; exec sleep 60'")
    assert(child:wait_output("slept", PATIENCE), child:output())
    assert.equal(("job %d\nslept\n"):format(pid), child:output())
    child:kill("TERM")
    assert(child:wait_output("send TERM to it; start holdfast as root %(sudo holdfast run …%)\n$", PATIENCE), child:output())
    assert.is_true(runs(pid) and is_held())
    process.signal(pid, "KILL")
    assert.same({ "exit", 137 }, { child:wait(PATIENCE) })
    assert.is_false(is_held())
  end)

  it_as_root("keeps the lock of `holdfast lead` until all of its processes have ended", function()
    local child, pid = start("lead", "--json --lease 3", "echo shell $$; SUDO sleep 60 & wait")
    local leader = tonumber((assert(child:wait_output("shell (%d+)\n", PATIENCE))))
    assert(child:wait_output(refused(pid), PATIENCE), child:output())
    child:kill("TERM")
    eventually(function() return not runs(leader) end)
    assert.is_nil(process.wait_until(function() return not is_held() or child:status() end, 0.2))
    assert.matches('"event":"signal"', child:output(), 1, true)
    assert.matches(refused(pid, "TERM"), child:output())
    process.signal(pid, "KILL")
    assert.same({ "exit", 143 }, { child:wait(PATIENCE) })
    assert.is_false(is_held())
  end)
end)

it("holdfast run continues when its log may not grow further, and leaves SIGXFSZ to the job", function()
  local directory = process.directory()
  local script = command.shell_prelude(server) .. ([[

    d='%s'; head -c 1000 /dev/zero >$d/log && ulimit -f 1
    holdfast run --json k -- sh -c "exec 2>/dev/null; head -c 3000 /dev/zero >$d/big; echo job \$?" 2>>$d/log; echo $?
  ]]):format(directory)
  local child = command.other { "bash", "-c", script }
  assert.same({ "exit", 0 }, { child:wait(PATIENCE) }, child:output())
  assert.equal("job 153\n0\n", child:output())
  assert.is_false(is_held())
  process.remove(directory)
end)

it("holdfast run reaps the job's orphans if it is process 1", function()
  if not can "unshare --pid --fork --mount-proc true" then return pending("this user may make no namespaces") end
  local words = table.concat(command.words("run", "k", "--", "sh", "-c"), "' '")
  local script = ("unshare --pid --fork --mount-proc --kill-child '%s' '%s'"):format(words, [[
    for i in 1 2 3; do sh -c "(exec sleep 0.1) &"; done
    for i in $(seq 100); do
      sleep 0.05
      [ "$(ps -eo ppid=,comm= | grep -c "^ *1 sleep")" = 0 ] && echo none left && exit
    done]])
  local child = process.start { "sh", "-c", script, env = command.environment(server) }
  assert.same({ "exit", 0 }, { child:wait(PATIENCE) }, child:output())
  assert.equal("none left\n", child:output())
end)
