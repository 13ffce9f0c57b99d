-- Runs the code in the documents unchanged: Lua, shell, crontabs, settings files, the commands of
-- manifests, and terminal sessions. resty_examples_spec.lua runs the nginx blocks of
-- docs/how-to/openresty.md; tools/check_docs.lua lists what runs each other block, and compares the
-- code of translations with the originals.

local files = require "spec.support.files"
local lyaml = require "lyaml"
local nginx = require "spec.support.nginx"
local pages = require "spec.support.pages"
local process = require "spec.support.process"
local sys = require "spec.support.sys"
local world = require("spec.support.world").new()

local ROOT = assert(require("lfs").currentdir())
local LUA_PATH = process.lua_path:gsub("%./", ROOT .. "/")
local LUA_CPATH = process.lua_cpath:gsub("^%./", ROOT .. "/")

-- What runs before a page's terminal sessions.
local BEFORE = {
  ["docs/reference/inspect.md"] = [[
    holdfast run --name nightly jobs:backup -- sleep 60 &
    echo $! >>pids
    until holdfast ls 'jobs:*' | grep -q nightly; do sleep 0.02; done
    holdfast run -w 60 jobs:backup -- true &
    echo $! >>pids
    until test "$(holdfast show jobs:backup | grep -c ' pid ')" = 2; do sleep 0.02; done
    holdfast run --idempotent 1h invoice:2025-11 -- true
    holdfast run --permits 3 --name nightly payments -- sleep 60 &
    echo $! >>pids
    until holdfast show payments | grep -q nightly; do sleep 0.02; done
    holdfast run --permits 3 payments -- sleep 60 &
    echo $! >>pids
    until test "$(holdfast show payments | grep -c ' pid ')" = 2; do sleep 0.02; done
    holdfast latch set import:parts 2
    holdfast latch wait import:parts &
    echo $! >>pids
    until holdfast ls 'import:*' | grep -q parts; do sleep 0.02; done
  ]],
}

before_each(world.open)
after_each(world.close)

local function environment()
  return {
    HOLDFAST_URL = world.server:url(), HOLDFAST_SERVERS = false, HOLDFAST_CONFIG = "/dev/null",
    LUA_INIT = false,
    LUA_PATH = LUA_PATH, LUA_CPATH = LUA_CPATH,
      LUA_CPATH_5_4 = LUA_CPATH:gsub(process.flavour .. "/", "lua5.4/"),
  }
end

-- Puts the test's servers into the text.
local function here(text)
  if text:find("redis://b", 1, true) then
    for _, name in ipairs { "a", "b", "c" } do
      text = text:gsub("redis://" .. name .. "%f[^%w.]", world.another():url())
    end
  end
  return (text:gsub("redis://127%.0%.0%.1:6379", world.server:url()))
end

-- ---- the directory of a reader: the sources, the command in PATH, and the scripts of their own
-- ----

local directory

local write = files.write

local function write_program(path, text)
  write(path, "#!/bin/sh\n" .. text)
  assert(process.succeeds("chmod 755 " .. path))
end

local function shell(text, seconds)
  write(directory .. "/block", text)
  local env = environment()
  env.PATH = directory .. "/bin:" .. os.getenv("PATH")
  local child = process.start { "sh", "-c", "cd " .. directory .. " && exec sh -e ./block",
    env = env }
  world.children[#world.children + 1] = child
  return child, child:wait(seconds or 20)
end

local function open_directory(text)
  directory = process.directory()
  process.succeeds(("mkdir %s/bin && ln -s %s/examples %s/tools %s/csrc %s/spec %s"):format(
    directory, ROOT, ROOT, ROOT, ROOT, directory))
  write_program(directory .. "/bin/holdfast",
    ('exec %s %s/bin/holdfast "$@"\n'):format(sys.interpreter(), ROOT))
  for name in text:gmatch("%f[%w./]%./([%w.-]+)") do
    write_program(directory .. "/" .. name, ('echo "%s $*"\n'):format(name))
  end
end

local function close_directory()
  process.remove(directory)
  world.cli("FLUSHALL") -- the record of a finished run stays
end

local function runs(text, seconds)
  open_directory(text)
  local child, how, code = shell(here(text), seconds)
  close_directory()
  assert.same({ "exit", 0 }, { how, code }, child:output())
end

-- ---- blocks ----

local RUN = {}

-- The newline: -e refuses text that begins with a dash.
local function lua(text) return world.program { code = "\n" .. here(text), env = environment() } end

-- Debian has copas for LuaJIT, and not for Lua 5.4.
local function is_missing(text)
  return text:find('require "copas"', 1, true) and not pcall(require, "copas")
end

function RUN.lua(text)
  if is_missing(text) then return pending("no copas here") end
  local child = lua(text)
  local how, code = child:wait(30)
  assert.same({ "exit", 0 }, { how, code }, child:output())
  world.cli("FLUSHALL")
end

function RUN.sh(text) runs(text) end

-- The fields are minute, hour, day, month, weekday, user, and command.
function RUN.cron(text)
  for line in text:gmatch("[^\n]+") do
    if not line:find("^#") then runs(assert(line:match(("%S+%s+"):rep(6) .. "(.*)$")) .. "\n") end
  end
end

function RUN.ini(text)
  open_directory(text)
  write(directory .. "/settings", text)
  local child, how, code = shell("HOLDFAST_CONFIG=$PWD/settings holdfast ping")
  close_directory()
  assert.same({ "exit", 0 }, { how, code }, child:output())
end

-- Collects the commands of a manifest's containers and probes, as lines for a shell.
local function add_commands(node, lines)
  for key, value in pairs(node) do
    if key == "command" then
      lines[#lines + 1] = "'" .. table.concat(value, "' '") .. "'\n"
    elseif type(value) == "table" then
      add_commands(value, lines)
    end
  end
  return lines
end

function RUN.yaml(text)
  local lines = add_commands(lyaml.load(text), {})
  assert.is_true(#lines > 0)
  for _, line in ipairs(lines) do
    local endless = line:find("^'holdfast' 'lead' ")
    runs(endless and "timeout 0.3 " .. line:gsub("\n$", " || test $? = 124\n") or line)
  end
end

-- Makes equal what changes from run to run.
local function settled(text)
  local host = pages.read("/proc/sys/kernel/hostname"):gsub("%s", "")
  text = text:gsub(host:gsub("%p", "%%%0"), "db1")
  text = text:gsub("%S*%d%S*", "#"):gsub("# min # s%f[%W]", "# s"):gsub("# ms%f[%W]", "# s")
  return (text:gsub("[ \t]+", " "):gsub("^%s+", ""):gsub("%s+$", ""))
end

-- Types each line that follows a $: it must print the lines below it.
function RUN.console(text, path)
  open_directory(text)
  shell(BEFORE[path] or "true")
  for command, shown in ("\n" .. text):gsub("\n%$ ", "\0"):gmatch("%z([^\n]*)\n([^%z]*)") do
    local child, how = shell(here(command))
    assert.equal("exit", how, command)
    assert.equal(settled(shown), settled(child:output()), command)
  end
  shell("test ! -e pids || kill $(cat pids)")
  close_directory()
end

-- A whole http block with a server: each location answers.
function RUN.nginx(text)
  if not nginx.is_there() then return pending("there is no nginx with ngx_lua") end
  local inner = text:match("^http {(.*)}%s*$")
  local server = inner:match("server (%b{})")
  local front = nginx.start { http = here(inner:gsub("server %b{}", "")),
    server = server:sub(2, -2) }
  for place in server:gmatch("location (%S+) {") do
    local answer = front:get(place)
    assert.equal(200, answer.status, place .. ": " .. tostring(answer.body))
  end
  local errors = front:errors()
  front:stop("TERM")
  assert.same({}, errors)
  world.cli("FLUSHALL")
end

-- ---- the tutorial: its blocks are pasted into one shell, in turn ----

local TUTORIAL = "docs/tutorial.md"

-- Pastes block.1, block.2 and so on, each as soon as its file go.N exists.
local PASTE = [[
n=1
while :; do
  until [ -e "$HOME/go.$n" ]; do sleep 0.01; done
  . "$HOME/block.$n"
  touch "$HOME/done.$n"
  n=$((n + 1))
done]]

-- A reader is slower than the processes that a block has started; the test waits for this first.
local READY = {
  ["holdfast show order:42\n"] = "holdfast show order:42 | grep -q worker-1",
  ["holdfast top\n"] = "holdfast show stock:7 | grep -q 'waiters  3' && holdfast ls | grep -q worker-1",
}

local function exists(name)
  local file = io.open(directory .. "/" .. name)
  return file and file:close()
end

-- → the pattern for the output, in which … is any text
local function shown_as(text)
  return "^" .. settled(text):gsub("%p", "%%%0"):gsub("…", ".*") .. "$"
end

-- → whether the block has ended and its output is what the page shows, the output
local function paste(session, number, block, expected)
  local printed = #session:output()
  local ready = READY[block.text]
  if ready then shell(("until %s; do sleep 0.02; done"):format(ready)) end
  write(("%s/block.%d"):format(directory, number), block.text)
  write(("%s/go.%d"):format(directory, number), "")
  local here_is = "unix:" .. world.server.path:gsub("%p", "%%%0")
  local function text()
    return (session:output():sub(printed + 1):gsub(here_is, "127.0.0.1:6379"))
  end
  local good = process.wait_until(function()
    return exists("done." .. number) and settled(text()):find(shown_as(expected))
  end, 20)
  return good, text()
end

local function open_session()
  open_directory("")
  local env = environment()
  env.PATH, env.HOME = directory .. "/bin:" .. os.getenv("PATH"), directory
  local session = process.start { "sh", "-c", ("cd %s\n%s"):format(directory, PASTE), env = env }
  world.children[#world.children + 1] = session
  return session
end

-- Also stops servers that a failed test has left.
local function close_session()
  for _, name in ipairs { "a", "b", "c" } do
    process.succeeds(("redis-cli -s %s/holdfast-tutorial/%s.sock shutdown nosave >/dev/null 2>&1"):format(
      directory, name))
  end
  close_directory()
end

it(TUTORIAL .. ": runs as pasted, and prints what it shows", function()
  local session, blocks = open_session(), pages.blocks(TUTORIAL)
  finally(close_session)
  local count = 0
  for i, block in ipairs(blocks) do
    if block.language == "sh" then
      local below = blocks[i + 1]
      count = count + 1
      local expected = below and below.language == "text" and below.text or ""
      local good, printed = paste(session, count, block, expected)
      if not good then assert.equal(expected, printed, ("line %d"):format(block.line)) end
    end
  end
  assert.is_true(count > 10)
end)

for _, path in ipairs(pages.all()) do
  local count, is_run = {}, path ~= TUTORIAL and not pages.original(path)
  for _, block in ipairs(pages.blocks(path)) do
    local language = block.language
    if is_run and RUN[language] and not pages.runs_elsewhere(path, block) then
      count[language] = (count[language] or 0) + 1
      it(("%s, %s %d: runs as pasted"):format(path, language, count[language]), function()
        RUN[language](block.text, path)
      end)
    end
  end
end

-- The files of the packages, with the test's programs in place of the named ones.
describe("the example", function()
  local function with_programs(text)
    return (text:gsub("%-%- /usr/local/bin/", "-- ./"):gsub("%-%-min%-hold %S+", "--min-hold 1ms"))
  end

  it("crontab runs each of its jobs", function()
    local jobs = ("\n" .. pages.read("examples/cron/nightly")):gsub("\n[%u_]+=[^\n]*", "")
    RUN.cron(with_programs(jobs))
  end)

  it("systemd unit runs its job", function()
    local unit = pages.read("examples/systemd/report.service")
    local command = with_programs(unit:match("\nExecStart=(holdfast [^\n]*)"):gsub("%%n", "report.service"))
    runs(command .. "\n")
  end)
end)

describe("a Lua sample in the README", function()
  local PRINTED = {
    "^paid 990 with fencing token %d+\nholdfast.lock: order:42 %(held, 29%.%d s left%)\n$",
  }

  for i, printed in ipairs(PRINTED) do
    it(("prints the documented output and leaves the lock free: %d"):format(i), function()
      local child = lua(pages.blocks_in("README.md", "lua")[i].text)
      assert.same({ "exit", 0 }, { child:wait(20) })
      assert.matches(printed, child:output())
      assert.truthy(process.wait_until(function() return world.cli("EXISTS", "order:42") == 0 end, 20))
    end)
  end
end)
