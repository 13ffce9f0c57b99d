-- Runs of the command with jobs, on one server for all tests of a file, each test in a directory of
-- its own:
--
--   before_each(jobs.open) after_each(jobs.close)      or jobs.open_alone

local assert = require "luassert"
local command = require "spec.support.command"
local files = require "spec.support.files"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local stand_in = require "spec.support.stand_in"

local unpack = table.unpack or unpack

local PATIENCE = 40

local jobs = {
  PATIENCE = PATIENCE,
  SIGNALS = {
    HUP = 1, INT = 2, QUIT = 3, USR1 = 10, USR2 = 12, TERM = 15, CHLD = 17, CONT = 18, TSTP = 20,
    WINCH = 28,
  },
  -- POSIX cannot end a job together with the program that started it.
  ENDS_WITH_PARENT = not process.build:find("portable", 1, true),
}

local server, directory, holders, own, kept
local settings_files = 0

-- Stands for the server, which the first test starts.
jobs.server = stand_in(function() return server end)

function jobs.open()
  server = server or redis.start { tcp = true }
  server:cli("FLUSHALL")
  directory, holders, own, kept = process.directory(), {}, nil, {}
end

-- Only the directory: the command is not told of any server.
function jobs.open_alone()
  directory, holders, own, kept, server = process.directory(), {}, nil, {}, nil
end

function jobs.close()
  for _, client in ipairs(holders) do client:close() end
  process.remove(directory)
end

-- ---- files and processes ----

-- → the path of this file of the test
function jobs.file(name) return directory .. "/" .. name end

function jobs.exists(path)
  local file = io.open(path)
  if file then file:close() end
  return file ~= nil
end

jobs.read, jobs.write = files.read_any, files.write

-- → the environment of a command whose settings file has these lines
function jobs.settings(...)
  settings_files = settings_files + 1
  local path = jobs.file("settings" .. settings_files .. ".conf")
  return { HOLDFAST_CONFIG = jobs.write(path, table.concat({ ... }, "\n"), "\n") }
end

function jobs.lines_of(text) return select(2, text:gsub("\n", "")) end

function jobs.eventually(condition) return process.eventually(condition, PATIENCE) end

-- Returns the state of the process: "R", "S", "T", ...; nil after its end.
function jobs.state(pid) return jobs.read(("/proc/%d/stat"):format(pid)):match("%) (%a)") end

function jobs.is_gone(pid)
  local is = jobs.state(pid)
  return is == nil or is == "Z"
end

-- On a busy machine a program may be late once, but not each time.
function jobs.in_time(seconds, attempt)
  local took
  for _ = 1, 3 do
    took = attempt()
    if took < seconds then return end
  end
  error(("it took %.3f s, each time more than %s"):format(took, seconds), 2)
end

-- A part of a script that waits until the test creates this file.
function jobs.await(name)
  return ("while [ ! -e %s ]; do sleep 0.02; done"):format(jobs.file(name))
end

-- ---- the command ----

function jobs.sees(child, pattern)
  return assert(child:wait_output(pattern, PATIENCE), child:output())
end

function jobs.exits(child, code)
  assert.same({ "exit", code }, { child:wait(PATIENCE) }, child:output())
end

-- Sends TERM or the signal.
function jobs.stop(child, code, signal)
  child:kill(signal or "TERM")
  jobs.exits(child, code)
end

-- → exit code, output. Where holdfast cannot prove that a process has ended, it says so first.
function jobs.run(words)
  local code, output = command.run(server, words)
  output = output:gsub('^{"event":"crash_release_off"[^\n]*"unsupported"}\n', "")
  return code, (output:gsub("^holdfast run: crash release is off: this system[^\n]*\n", ""))
end

-- → the output of a run
function jobs.output_of(words) return (select(2, jobs.run(words))) end

-- Asserts that the run exits with this code and has this output.
function jobs.gives(code, output, words) assert.same({ code, output }, { jobs.run(words) }) end

-- Asserts that the run exits with this code, and that its output matches. → the output
function jobs.says(code, pattern, words)
  local exited, output = jobs.run(words)
  assert.equal(code, exited, output)
  assert.matches(pattern, output)
  return output
end

function jobs.start(words) return command.start(server, words) end

-- nested_in({ "run", "k" }, "run", "k", "--", "true") → the words of a run whose job is the command
-- with the other words
function jobs.nested_in(words, ...)
  local all = { env = words.env, unpack(words) }
  all[#all + 1] = "--"
  for _, word in ipairs(command.words(...)) do all[#all + 1] = word end
  return all
end

-- A job that sets the traps with which the script begins, writes its process id to the file,
-- prints "ready", and runs the rest.
function jobs.job(script)
  local traps, rest = "", script
  repeat
    local trap, after = rest:match("^(trap '[^']*' %u+; )(.*)$")
    if trap then traps, rest = traps .. trap, after end
  until not trap
  return traps .. "echo $$ >" .. jobs.file "pid" .. "; echo ready; " .. rest
end

-- → the child, the process id of the job
function jobs.start_job(words, script)
  words[#words + 1] = "--"
  for _, word in ipairs { "sh", "-c", jobs.job(script) } do words[#words + 1] = word end
  local child = jobs.start(words)
  jobs.sees(child, "ready\n")
  return child, tonumber(jobs.read(jobs.file "pid"))
end

-- Starts a job whose standard error is a full pipe that nobody reads.
-- → the child, the process ids of the job and of holdfast
function jobs.start_unread(option)
  local fifo, ids = jobs.file "fifo", jobs.file "ids"
  local script = command.shell_prelude(server) .. ("\nmkfifo %s; exec 7<>%s\n"):format(fifo, fifo)
    .. "holdfast run " .. option .. " --lease 9 k -c 'yes >&2 & echo $! $$ $PPID >" .. ids
    .. "; exec sleep 60' 2>" .. fifo
  local child = command.other { "sh", "-c", script }
  jobs.eventually(function() return jobs.lines_of(jobs.read(ids)) == 1 end)
  local writer, pid, parent = jobs.read(ids):match("(%d+) (%d+) (%d+)")
  jobs.eventually(function() return jobs.state(tonumber(writer)) == "S" end)
  return child, tonumber(pid), tonumber(parent)
end

-- Calls `call` with only these environment variables.
function jobs.with_variables(variables, call, ...)
  local getenv = os.getenv
  os.getenv = function(name) return variables[name] end -- luacheck: ignore 122
  local results = { pcall(call, ...) }
  os.getenv = getenv -- luacheck: ignore 122
  assert(results[1], results[2])
  return unpack(results, 2, 3)
end

-- ---- locks ----

-- Writes a lock like another program.
function jobs.write_lock(key, owner)
  server:cli("HSET", key, owner or "b983c153-7421-469a-addb-44fb92259a1b:1", 1)
  server:cli("PEXPIRE", key, 60000)
end

-- Waits until so many callers are in the key's queue.
function jobs.comes_to_wait(count, key)
  jobs.eventually(function() return jobs.own():lock(key):info().waiters == count end)
end

function jobs.is_free(key) return server:cli("EXISTS", key or "k") == 0 end

-- → a client of this process
function jobs.client(options)
  local client = holdfast.new(options or server:url())
  holders[#holders + 1] = client
  return client
end

-- → a client of this process, the same one during a test
function jobs.own()
  own = own or jobs.client()
  return own
end

-- Acquires the lock, and keeps it until the test ends: a lock that is collected is released.
function jobs.keep(lock)
  kept[#kept + 1] = assert(lock:acquire())
  return lock
end

-- → a lock that this process holds
function jobs.hold(key, options) return jobs.keep(jobs.own():lock(key, options)) end

-- Returns the key under which the child has published itself, or nil.
function jobs.name_of(child)
  for _, key in ipairs(server:cli("KEYS", "holdfast_client:*")) do
    if (server:cli("GET", key) or ""):match("^%S+ (%d+)") == tostring(child.pid) then return key end
  end
end

return jobs
