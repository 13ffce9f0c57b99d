-- What the first command on a clean system needs: tools/setup.sh, and a Makefile that decides
-- nothing before the set-up has run. The system's programs are stand-ins in a separate PATH.

local files = require "spec.support.files"
local process = require "spec.support.process"

local directory, bin

-- Makes a program of the stand-in system.
local function program(name, script)
  local path = bin .. "/" .. name
  files.write(path, "#!/bin/sh\n", script, "\n")
  assert(process.succeeds("chmod 755 " .. path))
end

-- Gives programs of this system to the stand-in system.
local function link(...)
  for _, name in ipairs { ... } do
    assert(process.succeeds(('ln -s "$(command -v %s)" %s/'):format(name, bin)))
  end
end

-- → its output, its exit code
local function run(command, path)
  local pipe = io.popen(("PATH=%s; export PATH; (%s) </dev/null 2>&1; echo $?"):format(path or bin, command))
  local text = pipe:read("*a")
  pipe:close()
  local output, code = text:match("^(.-)(%d+)\n$")
  return output, tonumber(code)
end

before_each(function()
  directory = process.directory()
  bin = directory .. "/bin"
  assert(process.succeeds("mkdir " .. bin))
end)

after_each(function() process.remove(directory) end)

describe("tools/setup.sh", function()
  -- A system without any of the packages; of luajit2 it knows only the name.
  before_each(function()
    link("sh", "tr", "grep", "find", "sed", "head", "cut", "tee", "chmod", "rm", "env", "sleep")
    program("id", "echo ${TEST_UID:-0}")
    program("dpkg-query", "exit 1")
    program("apt-cache", [[case $2 in luajit2 | libluajit2-5.1-dev | $TEST_ABSENT) candidate="(none)" ;; *) candidate=1.0 ;; esac
      printf '%s:\n  Installed: (none)\n  Candidate: %s\n' "$2" "$candidate"]])
    program("apt-get", "echo apt-get $* >>" .. directory .. "/log")
  end)

  local function log() return files.read_any(directory .. "/log") end

  it("does not install a package that is only mentioned in another one", function()
    local output, code = run("tools/setup.sh demo")
    assert.equal(0, code, output)
    assert.matches("^apt%-get update %-q\napt%-get install [^\n]* luajit libluajit%-5%.1%-dev ", log())
    assert.is_nil(log():find("luajit2", 1, true))
  end)

  it("lists all packages in one command if it may not install them", function()
    local output, code = run("TEST_UID=1000 tools/setup.sh demo")
    assert.equal(1, code)
    assert.matches("\nsetup:   apt%-get update && apt%-get install [^\n]*gcc make [^\n]* redis%-server\n$", output)
    assert.equal("", log())
  end)

  it("calls sudo once, and gives up if sudo refuses", function()
    program("sudo", ("echo sudo >>%s/log; exit 1"):format(directory))
    local output, code = run("TEST_UID=1000 tools/setup.sh demo")
    assert.equal(1, code)
    assert.equal("sudo\n", log())
    assert.matches("apt%-get install [^\n]* redis%-server\n$", output)
  end)

  it("refuses the nginx demo before installing anything if the Lua module has no package", function()
    for _, user in ipairs { "0", "1000" } do
      local output, code = run(("TEST_UID=%s TEST_ABSENT=libnginx-mod-http-lua tools/setup.sh demo-openresty"):format(user))
      assert.equal(1, code)
      assert.matches("^setup: [^\n]+ packages no Lua module for nginx %(libnginx%-mod%-http%-lua%)", output)
    end
    assert.equal("", log())
  end)

  it("skips a missing package that only tests need, and installs nothing if the rest is there", function()
    local output, code = run("TEST_ABSENT=libnginx-mod-http-lua tools/setup.sh test")
    assert.equal(0, code, output)
    assert.is_nil(log():find("http-lua", 1, true))
    assert(process.succeeds("rm " .. directory .. "/log"))
    program("dpkg-query", [[case $3 in libnginx-mod-http-lua) exit 1 ;; esac; echo installed]])
    output, code = run("TEST_UID=1000 TEST_ABSENT=libnginx-mod-http-lua tools/setup.sh test")
    assert.equal(0, code, output)
    assert.equal("", log())
  end)

  it("uses sudo if that is allowed", function()
    program("sudo", '"$@"')
    local output, code = run("TEST_UID=1000 tools/setup.sh demo")
    assert.equal(0, code, output)
    assert.matches("apt%-get install ", log())
  end)
end)

describe("the Makefile", function()
  local tree

  -- Makes a tree with a Makefile that builds nothing, this set-up, and a demo that prints its Lua.
  local function make_tree(setup)
    tree = directory .. "/tree"
    assert(process.succeeds(("mkdir -p %s/tools %s/examples && cp Makefile %s/ && ln -s $PWD/lua %s/")
      :format(tree, tree, tree, tree)))
    files.write(tree .. "/examples/flash_sale.lua", 'print("a demo under " .. _VERSION)\n')
    files.write(tree .. "/tools/setup.sh", "#!/bin/sh\n", setup)
    assert(process.succeeds(("chmod 755 %s/tools/setup.sh"):format(tree)))
  end

  it("finds the Lua that the demo's set-up has installed", function()
    -- all programs of this system except Lua
    assert(process.succeeds(("ln -s /usr/bin/* %s/ && rm -f %s/lua* %s/sudo"):format(bin, bin, bin)))
    make_tree(('ln -s "$(PATH=/usr/bin:/usr/local/bin command -v lua5.4)" %s/\n'):format(bin))
    local output, code = run(("cd %s && make -s demo MODULES= SUPPORT= FLAVOURS=lua5.4"):format(tree))
    assert.matches("^building holdfast first, [^\n]+\na demo under Lua 5%.4\n$", output)
    assert.equal(0, code)
  end)

  -- → the interpreter of the installed command, on a system with these versions of Lua
  local function interpreter(luas, arguments)
    for _, name in ipairs(luas) do program(name, "exit 1") end
    local output = run("make -s --eval='print: ; @echo $(SHEBANG)' print BUILD=" .. directory .. "/build " .. arguments)
    process.succeeds(("rm -f %s/lua*"):format(bin))
    return (output:match("([^\n]*)\n$"))
  end

  it("gives the installed command a Lua for which modules were built", function()
    link("make", "sed", "find", "mkdir", "cmp", "uname", "pkg-config", "sh", "gcc")
    program("echo", [[printf '%s\n' "$*"]])
    local all = { "lua5.1", "lua5.2", "lua5.3", "lua5.4", "lua5.5", "luajit" }
    for _, flavour in ipairs(all) do
      local expected = flavour == "lua5.1" and "luajit" or flavour
      assert.equal(expected, interpreter(all, "FLAVOURS=" .. flavour))
    end
    assert.equal("lua5.4", interpreter(all, "FLAVOURS='lua5.1 lua5.4 luajit'"))
    assert.equal("lua5.1", interpreter({ "lua5.1", "lua5.4" }, "FLAVOURS=luajit"))
    assert.equal("luajit", interpreter({ "lua5.4" }, "FLAVOURS=luajit"))
    assert.equal("lua5.3", interpreter(all, "FLAVOURS=lua5.4 LUA=lua5.3"))
  end)
end)
