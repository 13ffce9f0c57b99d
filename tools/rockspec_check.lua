-- Checks the version: only lua/holdfast/version.lua defines it, the changelog begins with it, the
-- rockspec in the sources has none, and a release's rockspec, which make dist writes, can be loaded
-- and contains it. Also checks that dist.ini, for OpenResty's opm, has the fields that opm build
-- needs, and that every link to the forge matches the rockspec's homepage.
--
--   lua5.4 tools/rockspec_check.lua           prints a line for each problem, exits with 1

local tools = dofile "tools/files.lua"
local read = tools.read

local function expect(ok, ...) return ok or tools.fail(...) end

local function rockspec(path)
  local fields = {}
  assert(load(read(path), "@" .. path, "t", fields))()
  return fields
end

local version = dofile("lua/holdfast/version.lua")
local number, candidate = version:match("^(%d+%.%d+%.%d+)(.*)$")
expect(number and (candidate == "" or candidate:find("^%-rc%d+$")), "%s is not a semantic version",
  version)

local latest = read("CHANGELOG.md"):match("\n## %[(%d[^%]]*)%]") -- unreleased changes are above it
expect(latest == version, "CHANGELOG.md begins with %s, the version is %s", latest, version)

local sources = rockspec("holdfast-scm-1.rockspec")
expect(sources.version == "scm-1", "holdfast-scm-1.rockspec is of another version")

-- ---- the forge ----

local home = sources.description.homepage
for _, path in ipairs { "holdfast-scm-1.rockspec", "dist.ini", "README.md", "README.zh-CN.md",
  "CONTRIBUTING.md", "SECURITY.md", "packaging/debian/control", "packaging/debian/copyright",
  "packaging/site/mkdocs.yml" } do
  local places = 0
  for url in read(path):gmatch("https?://[^%s\"]+/holdfast%f[^%w_-]") do
    expect(url == home, "%s names %s, the homepage of the rockspec is %s", path, url, home)
    places = places + 1
  end
  expect(places > 0, "%s does not name %s, the homepage of the rockspec", path, home)
end

-- ---- the rockspec of a release ----

local directory = os.tmpname()
os.remove(directory)
local ok, said = tools.run(("make -s dist BUILD=%s DIST_URL=https://host/path"):format(directory))
expect(ok, "make dist: %s", said)
local release = rockspec(said:match("%S+%.rockspec"))
expect(release.version == version:gsub("%-", "") .. "-1", "the rockspec of make dist is of %s",
  release.version)
local url = "https://host/path/holdfast-" .. version .. ".tar.gz"
expect(release.source.url == url, "its source is %s", release.source.url)
os.execute("rm -rf " .. directory)

-- ---- dist.ini, by the rules of opm build ----

local function ini(path)
  local fields = {}
  for line in io.lines(path) do
    local name, value = line:match("^%s*([%w_]+)%s*=%s*(.-)%s*$")
    expect(name or line:find("^%s*[#;]") or not line:find("%S"), "%s: opm reads no such line: %s",
      path, line)
    if name then
      expect(fields[name] == nil, "%s: %s stands there twice", path, name)
      fields[name] = value
    end
  end
  return fields
end

ok, said = tools.run(("tools/opm %s %s"):format(version, directory))
expect(ok, "tools/opm: %s", said)
local package = ini(directory .. "/dist.ini")
local RULES = {
  name = "^[%w-]+$", abstract = "%S", author = "%a", is_original = "^yes$", license = "^mit$",
  version = "^[%w.]+$", repo_link = "^https?://%S+$", lib_dir = "^[%w/]+$", doc_dir = "^[%w/]+$",
  main_module = "^lua/[%w/]+%.lua$", requires = "^[%w_]+[%w_ ,.>=/-]*$", exclude_files = "^%S+$",
}
for name, pattern in pairs(RULES) do
  expect(package[name] and package[name]:find(pattern), "dist.ini: opm takes no %s = %s", name,
    package[name])
end
for name in pairs(package) do expect(RULES[name], "dist.ini: opm knows no field %s", name) end
expect(ini("dist.ini").version == nil, "dist.ini has a version; tools/opm adds it")
expect(package.version == version:gsub("%-", ""), "dist.ini of tools/opm is of %s", package.version)
for _, name in ipairs { "lib_dir", "doc_dir", "main_module" } do
  expect(tools.exists(directory .. "/" .. package[name]), "dist.ini: %s leads nowhere", name)
end
-- what opm reads as the code's version must be that version
for line in io.lines(package.main_module) do
  local found = line:match("VERSION%s*=%s*(%S+)") or line:match("%f[%w]version%s*=%s*(%S+)")
  expect(not (found and found:find("%d")), "%s: opm takes %s for its version", package.main_module,
    found)
end
for _, path in ipairs(tools.lines_of "find lua -name '*.lua'") do
  expect(tools.run(("luajit -b %s /dev/null"):format(path)) or path == package.exclude_files,
    "opm takes no package with %s, which LuaJIT does not compile", path)
end
os.execute("rm -rf " .. directory)

tools.finish()
