-- The commands of README.md and docs/how-to/install.md, word for word. LuaRocks and make install
-- write to a directory of the test instead of the system's.

local dkjson = require "dkjson" -- busted's own
local files = require "spec.support.files"
local pages = require "spec.support.pages"
local process = require "spec.support.process"
local redis = require "spec.support.redis"

local LUAS = {
  ["5.1"] = { "lua5.1", "luajit" }, ["5.2"] = { "lua5.2" }, ["5.3"] = { "lua5.3" },
  ["5.4"] = { "lua5.4" },
  ["5.5"] = { "lua5.5" },
}
local OPENRESTY = "/usr/local/openresty"

local function shell(text, env)
  local child = process.start { "sh", "-c", text, env = env }
  local how, code = child:wait(120)
  return how == "exit" and code == 0, child:output()
end

local function has(program) return (shell("command -v " .. program)) end

describe("make", function()
  it("compiles and links with the environment's CC, CPPFLAGS, CFLAGS and LDFLAGS", function()
    local directory = process.directory()
    local ok, output = shell("make -n modules unit-programs BUILD=" .. directory, {
      CC = "some-cc", CPPFLAGS = "-DGIVEN", CFLAGS = "-O7", LDFLAGS = "-Wl,-z,given",
      MAKEFLAGS = false,
    })
    process.remove(directory)
    assert(ok, output)
    local compiled, linked = 0, 0
    for line in output:gmatch("[^\n]+") do
      if line:find(" %-o ") then
        assert.matches("^some%-cc .*%-O7", line)
        compiled = compiled + (line:find("-DGIVEN", 1, true) and 1 or 0)
        linked = linked + (line:find("-Wl,-z,given", 1, true) and 1 or 0)
      end
    end
    assert.is_true(compiled > 50, output)
    assert.is_true(linked > 10, output)
  end)

  it("hardens the binaries by default, and puts the user's flags last", function()
    local directory = process.directory()
    local function flags(words)
      local ok, output = shell("make -n modules BUILD=" .. directory .. " " .. words, {
        MAKEFLAGS = false, CFLAGS = false, CPPFLAGS = false, LDFLAGS = false, CC = "gcc",
      })
      assert(ok, output)
      return output:match("[^\n]* %-c csrc/core/holdfast%.c [^\n]*"), output:match("[^\n]*%-o [^\n]*/core%.so")
    end
    local compile, link = flags ""
    assert.matches("%-fstack%-protector%-strong", compile)
    local predefined = process.succeeds("gcc -O2 -dM -E -x c /dev/null | grep -qw _FORTIFY_SOURCE") -- as in Ubuntu
    assert.equal(not predefined, compile:find("-D_FORTIFY_SOURCE=2", 1, true) ~= nil)
    assert.matches("%-Wl,%-z,relro,%-z,now", link)
    compile, link = flags "CFLAGS='-O1 -fno-stack-protector' CPPFLAGS=-D_FORTIFY_SOURCE=3 SYSTEM=Darwin"
    assert.matches("%-fstack%-protector%-strong .*%-O1 %-fno%-stack%-protector", compile)
    assert.not_matches("FORTIFY_SOURCE=2", compile)
    assert.not_matches("relro", link)
    assert.not_matches("FORTIFY", (flags "CFLAGS=-O0"))
    process.remove(directory)
  end)

  it("uses each system's linker flags, and no GNU options of install", function()
    local directory = process.directory()
    local flags = { Darwin = "-bundle -undefined dynamic_lookup", FreeBSD = "-shared" }
    for system, flag in pairs(flags) do
      local ok, output = shell(("make -n modules BUILD=%s SYSTEM=%s"):format(directory, system),
        { MAKEFLAGS = false })
      assert(ok, output)
      local modules = 0
      for line in output:gmatch("[^\n]+") do
        if line:find(" %-o %S*/core%.so") then
          assert.truthy(line:find(flag, 1, true), line)
          assert.equal(flag == "-shared", line:find("-shared", 1, true) ~= nil)
          modules = modules + 1
        end
      end
      assert.is_true(modules > 0, output)
    end
    local _, output = shell(("make -n rock-install LUADIR=%s LIBDIR=%s"):format(directory,
      directory), { MAKEFLAGS = false })
    process.remove(directory)
    assert.matches("install %-m 644 lua/", output)
    assert.not_matches("install [^\n]* %-D", output)
  end)

  -- make -n runs no recipe, so here a Makefile that would remove the wrong folder does no harm.
  it("refuses a path with characters that the shell interprets", function()
    local directory = process.directory()
    local paths = {
      "my libs", " libs", "libs ", "a\tb", "a;b", "a&b", "a|b", "a'b", 'a"b', "a`b", "a$$b", "a\\b",
      "a*b", "a(b",
    }
    local function refuses(name, path, target)
      local words = ("%s='%s/%s'"):format(name, directory, (path:gsub("'", "'\\''")))
      local ok, output = shell("make -n " .. target .. " " .. words, { MAKEFLAGS = false })
      assert.is_false(ok, words)
      assert.truthy(output:find("*** " .. name .. " contains ", 1, true), output)
      assert.is_nil(output:find("rm -", 1, true), output)
    end
    for _, path in ipairs(paths) do refuses("PREFIX", path, "uninstall") end
    for _, name in ipairs { "DESTDIR", "LUA_SHARE_DIR", "LUA_LIB_DIR", "COMPLETION_DIR", "ZSH_DIR" } do
      refuses(name, "my libs", "uninstall")
    end
    for _, name in ipairs { "BUILD", "HIREDIS_DIR", "HIREDIS_INCDIR", "OPENSSL_LIBDIR" } do refuses(name, "my libs", "modules") end
    for _, name in ipairs { "LUADIR", "LIBDIR" } do refuses(name, "my libs", "rock-install") end
    process.remove(directory)
  end)

  it("accepts paths of the kind that packagers use", function()
    local ok, output = shell("make -n uninstall PREFIX=/opt/a+b-1.0_x,y DESTDIR=/build/holdfast-1.0~1/debian/tmp",
      { MAKEFLAGS = false })
    assert(ok, output)
    assert.matches("/build/holdfast-1.0~1/debian/tmp/opt/a+b-1.0_x,y/bin/holdfast", output, 1, true)
  end)

  it("prints one short line per file, and the whole command with V=1", function()
    local directory = process.directory()
    local object = directory .. "/obj/csrc/core/lock/kind.o"
    local function output_of(flags)
      os.remove(object)
      local ok, output = shell(("make %s BUILD=%s %s"):format(flags, directory, object),
        { MAKEFLAGS = false, V = false, CC = "gcc" })
      assert(ok, output)
      return output
    end
    assert.equal("CC " .. object .. "\n", output_of "")
    assert.equal("CC " .. object .. "\n", output_of "V=0")
    assert.equal("", output_of "-s")
    assert.matches("^gcc [^\n]* %-c csrc/core/lock/kind%.c %-o " .. object:gsub("%p", "%%%0"), output_of "V=1")
    process.remove(directory)
  end)

  it("says what to do about a build folder of another user", function()
    if not process.succeeds "test $(id -u) = 0" then return pending("only root can make such a folder") end
    local directory = process.directory()
    local object = directory .. "/obj/csrc/core/lock/kind.o"
    assert(shell(("make -s BUILD=%s %s && chmod 755 %s && rm %s"):format(directory, object, directory, object), { MAKEFLAGS = false }))
    local ok, output = shell(("setpriv --reuid nobody --clear-groups make BUILD=%s %s"):format(directory, object),
      { MAKEFLAGS = false })
    process.remove(directory)
    assert.is_false(ok)
    assert.matches(("you may not write to %s/obj/csrc/core/lock: take it over (sudo chown -R nobody %s), remove it, or build elsewhere (make BUILD=DIR)")
      :format(directory, directory), output, 1, true)
  end)

  it("fails with a message if there are no Lua headers", function()
    local ok, output = shell("make modules FLAVOURS=", { MAKEFLAGS = false })
    assert.is_false(ok)
    assert.matches("no headers of Lua", output)
  end)
end)

describe("make dist", function()
  local directory

  setup(function() directory = process.directory() end)
  teardown(function() process.remove(directory) end)

  -- → what SHA256SUMS has after make dist in that folder
  local function sums_of(folder, words)
    local ok, output = shell(("%s cd %s && make -s dist BUILD=build"):format(words or "", folder), { MAKEFLAGS = false })
    assert(ok, output)
    assert(shell(("cd %s/build/dist && sha256sum --quiet -c SHA256SUMS"):format(folder)))
    return pages.read(folder .. "/build/dist/SHA256SUMS")
  end

  it("produces the same bytes in any folder, from git or from an unpacked tarball", function()
    local ok, output = shell(([[
      set -e
      git clone -q . %s/clone
      umask 077
      git clone -q . %s/private
    ]]):format(directory, directory))
    if not ok then return pending("there is no git here: " .. output) end
    local expected = sums_of(directory .. "/clone")
    assert.equal(expected, sums_of(directory .. "/private", "umask 077; TZ=Asia/Tokyo; LC_ALL=en_US.UTF-8; export TZ LC_ALL;"))
    assert(shell(([[
      set -e
      mkdir %s/unpacked
      tar -xzf %s/clone/build/dist/holdfast-*.tar.gz -C %s/unpacked --strip-components=1
      cd %s/unpacked
      touch Makefile csrc/core/holdfast.o
      mkdir -p build.20260101000000/obj
    ]]):format(directory, directory, directory, directory)))
    assert.equal(expected, sums_of(directory .. "/unpacked"))
  end)

  it("keeps the checksums of Debian packages built from the same tarball, and drops all others", function()
    local ok, output = shell(([[
      set -e
      git clone -q . %s/packaged
      cd %s/packaged
      make -s dist BUILD=build
      echo "00  holdfast_1_all.deb" >>build/dist/SHA256SUMS
      cp build/dist/SHA256SUMS build/expected
      make -s dist BUILD=build
      cmp build/dist/SHA256SUMS build/expected
      git rm -q LICENSE
      git -c user.name=x -c user.email=x commit -q -m "change the sources"
      make -s dist BUILD=build
      ! grep "\\.deb$" build/dist/SHA256SUMS
    ]]):format(directory, directory), { MAKEFLAGS = false })
    assert(ok, output)
  end)

  it("lists the package and what it needs, with the fields that SPDX 2.3 requires", function()
    local ok, output = shell(("make -s dist BUILD=%s/sbom"):format(directory), { MAKEFLAGS = false })
    assert(ok, output)
    local path = output:match("%S+%.spdx%.json")
    local sbom = assert(dkjson.decode(pages.read(path)))
    assert.same({ "SPDX-2.3", "CC0-1.0", "SPDXRef-DOCUMENT" }, { sbom.spdxVersion, sbom.dataLicense, sbom.SPDXID })
    assert.matches("^https://[^#]+$", sbom.documentNamespace)
    assert.matches("^%d%d%d%d%-%d%d%-%d%dT%d%d:%d%d:%d%dZ$", sbom.creationInfo.created)
    assert.matches("^Organization: ", sbom.creationInfo.creators[1])
    local version, names, known = dofile("lua/holdfast/version.lua"), {}, { [sbom.SPDXID] = true }
    assert.equal("holdfast-" .. version, sbom.name)
    for i, package in ipairs(sbom.packages) do
      names[i], known[package.SPDXID] = package.name .. " " .. package.versionInfo, true
      assert.matches("^SPDXRef%-[%w.-]+$", package.SPDXID)
      assert.matches("^https://", package.downloadLocation)
      assert.matches("^[%w.-]+$", package.licenseDeclared)
      assert.is_false(package.filesAnalyzed) -- otherwise it needs a verification code
    end
    assert.same({ "holdfast " .. version, "lua >= 5.1, < 5.6", "hiredis >= 0.14", "openssl >= 3.0" }, names)
    assert.equal(#sbom.packages, #sbom.relationships)
    for _, each in ipairs(sbom.relationships) do
      assert.is_true(known[each.spdxElementId] and known[each.relatedSpdxElement])
    end
    local _, sum = shell(("sha256sum %s"):format(path:gsub("spdx%.json$", "tar.gz")))
    assert.same({ { algorithm = "SHA256", checksumValue = sum:match("^%x+") } }, sbom.packages[1].checksums)
  end)
end)

describe("an installation #install", function()
  local server, tree, env

  setup(function() server = redis.start() end)
  teardown(function() server:stop() end)

  before_each(function()
    tree = process.directory()
    files.write(tree .. "/config.lua", ([[rocks_trees = { { name = "system", root = %q } }]]):format(tree))
    env = {
      LUAROCKS_CONFIG = tree .. "/config.lua", HOME = tree, PREFIX = tree,
      HOLDFAST_URL = server:url(), HOLDFAST_CONFIG = "/dev/null", LUA_PATH = false,
      LUA_CPATH = false, LUA_INIT = false, MAKEFLAGS = "-j4",
    }
  end)
  after_each(function() process.remove(tree) end)

  -- Runs in another directory, so that the sources are not found.
  local function works_with(lua, version)
    local hello = pages.read("examples/hello.lua")
    files.write(tree .. "/hello.lua", hello)
    local paths = {
      LUA_PATH = ("%s/share/lua/%s/?.lua;%s/share/lua/%s/?/init.lua;;"):format(tree, version, tree,
        version),
      LUA_CPATH = ("%s/lib/lua/%s/?.so;;"):format(tree, version),
    }
    for name, value in pairs(env) do paths[name] = paths[name] or value end
    local ok, output = shell(("cd / && %s %s/hello.lua"):format(lua, tree), paths)
    assert(ok, ("%s: %s"):format(lua, output))
    assert.matches("paid 990 with fencing token", output)
  end

  local function command_works()
    local ok, output = shell(("cd / && %s/bin/holdfast run k -- echo held"):format(tree), env)
    assert(ok, output)
    assert.matches("held\n", output)
  end

  local function installed()
    return (shell(("find %s -name core.so | grep -q ."):format(tree), {}))
  end

  local seen = {}
  for _, page in ipairs { "README.md", "docs/how-to/install.md" } do
    for _, line in ipairs(pages.shell_lines(page, "^luarocks ")) do
      local version = line:match("%-%-lua%-version (%S+)")
      if not seen[line] and not line:find(OPENRESTY, 1, true) then
        seen[line] = true
        it(("by `%s` works"):format(line), function()
          local ok, output = shell(line, env)
          assert(ok, output)
          assert(shell("tools/check_symbols build/rock"))
          for _, lua in ipairs(LUAS[version]) do
            if has(lua) then works_with(lua, version) end
          end
          command_works()
        end)
      end
    end
  end

  it("in OpenResty's directories runs with its LuaJIT", function()
    local line = pages.shell_lines("docs/how-to/install.md", "^luarocks %-%-lua%-dir ")[1]
    local home = tree .. "/openresty"
    assert(shell(([[mkdir -p %s/luajit/bin %s/luajit/include && ln -s "$(command -v luajit)" %s/luajit/bin/ &&
      ln -s /usr/include/luajit-2.1 %s/luajit/include/]]):format(home, home, home, home)))
    local ok, output = shell(line:gsub(OPENRESTY, home), env)
    assert(ok, output)
    tree = home .. "/luajit"
    works_with(tree .. "/bin/luajit", "5.1")
    command_works()
    tree = tree:gsub("/openresty/luajit$", "")
  end)

  it("by make install works for each Lua, and make uninstall leaves nothing", function()
    local ok, output = shell("make -s install", env)
    assert(ok, output)
    assert(shell("tools/check_symbols build/install"))
    for version, interpreters in pairs(LUAS) do
      for _, lua in ipairs(interpreters) do
        if has(lua) then works_with(lua, version) end
      end
    end
    command_works()
    assert.is_true(shell(("test -e %s/share/man/man1/holdfast.1"):format(tree)))
    assert(shell("make -s uninstall", env))
    local _, left = shell(("cd %s && find bin lib share -type f"):format(tree))
    assert.equal("", left)
  end)

  it("by root leaves the built files to the owner of the sources", function()
    if not process.succeeds "test $(id -u) = 0" then return pending("only root can give a folder away") end
    local ok, output = shell(([[
      set -e
      make -s dist BUILD=%s/build
      tar -xzf %s/build/dist/holdfast-*.tar.gz -C %s
      chmod 755 %s
      cd %s/holdfast-*
      chown -R nobody .
      make -s FLAVOURS=lua5.4 install
      find . ! -user nobody
      setpriv --reuid nobody --clear-groups make -s FLAVOURS=lua5.4 modules
      setpriv --reuid nobody --clear-groups make -s FLAVOURS=lua5.4 BUILD=build/install CHECKED= modules
    ]]):format(tree, tree, tree, tree, tree), env)
    assert(ok, output)
    assert.equal("", output:gsub("%S+holdfast%-%S+\n", ""))
  end)

  it("for several Lua versions leaves the command to the first until that is removed", function()
    local lines = pages.shell_lines("docs/how-to/install.md", "^luarocks %-%-lua%-version %S+ make$")
    local first, last = lines[1], lines[#lines]
    assert(shell(first, env))
    assert(shell(last, env))
    command_works()
    local wrapper = pages.read(tree .. "/bin/holdfast")
    assert.matches("lua5.4", wrapper, 1, true)
    assert(shell("luarocks --lua-version 5.4 remove holdfast", env))
    assert(shell(first, env))
    command_works()
  end)

  it("from the tarball and the rockspec of make dist provides module and command", function()
    local ok, output = shell(("make -s dist BUILD=%s/build DIST_URL=file://%s/build/dist"):format(tree, tree), env)
    assert(ok, output)
    ok, output = shell(("luarocks --lua-version 5.4 install %s/build/dist/holdfast-*.rockspec"):format(tree), env)
    assert(ok, output)
    works_with("lua5.4", "5.4")
    command_works()
  end)

  it("is not needed by specs and checks, which pass in the unpacked tarball without git", function()
    local ok, output = shell(([[
      set -e
      make -s dist BUILD=%s/build
      tar -xzf %s/build/dist/holdfast-*.tar.gz -C %s
      cd %s/holdfast-*
      make -s FLAVOURS=lua5.4 build
      lua5.4 "$(command -v busted)" spec/lock_spec.lua spec/misuse_spec.lua
      lua5.4 tools/check_lines.lua
      make -s dist
    ]]):format(tree, tree, tree, tree), env)
    assert(ok, output)
    assert.matches(" 0 failures / 0 errors", output)
  end)

  for _, wrong in ipairs { { "5.4", "lua5.3" }, { "5.3", "lua5.4" }, { "5.1", "lua5.4" },
      { "5.4", "luajit-2.1" } } do
    it(("for Lua %s with the headers of %s fails, and says why"):format(wrong[1], wrong[2]),
      function()
      local ok, output = shell(([[make -s rock LUA=lua%s LUA_INCDIR=/usr/include/%s]]):format(wrong[1], wrong[2]), env)
      assert.is_false(ok)
      assert.matches("cannot load the module that was built with the headers in /usr/include/"
        .. wrong[2], output, 1, true)
      ok = shell(("luarocks --lua-version %s make LUA_INCDIR=/usr/include/%s"):format(wrong[1],
        wrong[2]), env)
      assert.is_false(ok)
      assert.is_false(installed())
    end)
  end
end)
