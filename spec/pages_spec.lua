-- The tables of the documents list exactly what the code has: options, error codes, counters, exit
-- codes, environment variables. The tests get these from the code.

local compat = require "holdfast.compat"
local exits = require "holdfast.command.exits"
local files = require "spec.support.files"
local holdfast = require "holdfast"
local options = require "holdfast.options"
local pages = require "spec.support.pages"

-- → the rows of the tables below a heading, each a list of its cells
local function rows_below(path, heading)
  local page = "\n" .. pages.read(path):gsub("\n```.-\n```", "\n")
  local rest = page:match("\n#+ " .. heading:gsub("%p", "%%%0") .. "\n(.*)$")
  assert(rest, path .. " has no heading " .. heading)
  local section, rows = (rest .. "\n# "):match("^(.-)\n#+ "), {}
  for line in section:gmatch("[^\n]+") do
    local cells = {}
    for cell in line:gsub("\\|", "/"):gmatch("|([^|]+)%f[|]") do cells[#cells + 1] = cell end
    if line:find("^|[-|]+$") then
      rows[#rows] = nil -- the head of the table
    elseif #cells > 0 then
      rows[#rows + 1] = cells
    end
  end
  assert(#rows > 0, path .. " has no table below " .. heading)
  return rows
end

-- Returns each `name` in the first cells.
local function documented(path, heading)
  local names = {}
  for _, cells in ipairs(rows_below(path, heading)) do
    for name in cells[1]:gmatch("`([%w_]+)`") do names[#names + 1] = name end
  end
  table.sort(names)
  return names
end

local function sorted(set, but)
  local names = {}
  for name in pairs(set) do
    if not (but and but[name]) then names[#names + 1] = name end
  end
  table.sort(names)
  return names
end

-- → the options that the call checks for, by the function's name in messages
local function known_by(call)
  local known, original = {}, options.check_options
  options.check_options = function(given, names, what, level) -- luacheck: ignore 122
    known[what] = names
    return original(given, names, what, level)
  end
  pcall(call)
  options.check_options = original -- luacheck: ignore 122
  return known
end

describe("the reference documents", function()
  local client

  setup(function() client = holdfast.new() end)
  teardown(function() client:close() end)

  -- A lock's options without `owner` and `keep`; those in `more` are documented elsewhere.
  local function of_lock(what, call, more)
    return { "docs/reference/api/lock.md", "Lock options", what, call, more or {}, { "owner", "keep" } }
  end

  local cases = {
    { "docs/reference/api/client.md", "Client options", "holdfast.new", function() holdfast.new {}:close() end },
    { "docs/reference/connect.md", "TLS", "holdfast.new: tls", function()
      holdfast.new { url = "rediss://h", tls = {} }:close()
    end },
    { "docs/reference/api/lock.md", "Lock options", "client:lock", function() client:lock("k", {}) end },
    { "docs/reference/api/lock.md", "Lock options", "client:mutex", function() client:mutex("k", {}) end },
    { "docs/reference/api/lock.md", "Lock options", "client:multi_lock", function()
      client:multi_lock({ "k" }, {})
    end, {}, { "keep" } },
    { "docs/reference/api/lock.md", "Lock options", "client:with_lock", function()
      client:with_lock("k", {}, 1)
    end,
      { abort_on_loss = true } },
    of_lock("client:read_write_lock", function() client:read_write_lock("k", {}) end),
    of_lock("client:fair_lock", function() client:fair_lock("k", {}) end),
    of_lock("client:with_read_lock", function() client:with_read_lock("k", {}, 1) end,
      { abort_on_loss = true }),
    of_lock("client:with_write_lock", function() client:with_write_lock("k", {}, 1) end,
      { abort_on_loss = true }),
    of_lock("client:with_fair_lock", function() client:with_fair_lock("k", {}, 1) end,
      { abort_on_loss = true }),
    { "docs/reference/api/one_by_one.md", "`client:one_by_one([options])`", "client:one_by_one", function()
      client:one_by_one {}
    end },
    { "docs/reference/api/lead.md", "`client:lead(key, [options,] fn, ...)`", "client:lead", function()
      client:lead("k", {}, 1)
    end },
    { "docs/reference/api/idempotent.md", "`client:idempotent(key, [options,] fn, ...)`", "client:idempotent",
      function() client:idempotent("k", {}, 1) end },
    { "docs/reference/api/semaphore.md", "`client:semaphore(key, [options])`", "client:semaphore",
      function() client:semaphore("k", {}) end },
    { "docs/reference/api/semaphore.md", "`semaphore:with_permit([options,] fn, ...)`", "semaphore:with_permit",
      function() client:semaphore("k"):with_permit({}, 1) end },
    { "docs/reference/api/plain_semaphore.md", "`client:plain_semaphore(key, [options])`", "client:plain_semaphore",
      function() client:plain_semaphore("k", {}) end },
    { "docs/reference/api/plain_semaphore.md", "`plain_semaphore:with_permit([options,] fn, ...)`",
      "plain_semaphore:with_permit",
      function() client:plain_semaphore("k"):with_permit({}, 1) end },
    { "docs/reference/api/latch.md", "`client:latch(key, [options])`", "client:latch",
      function() client:latch("k", {}) end },
    { "docs/reference/api/fence.md", "`client:fence(resource, [options])`", "client:fence",
      function() client:fence("k", {}) end },
    { "docs/reference/api/fence.md", "`holdfast.fence([options])`", "holdfast.fence",
      function() holdfast.fence {} end },
    { "docs/how-to/status_page.md", "The status page", "holdfast.status",
      function() holdfast.status {} end },
  }
  for _, case in ipairs(cases) do
    local path, heading, what, call, told_elsewhere, refused = compat.unpack(case, 1, 6)
    it(("list the options of %s, and no others"):format(what), function()
      local known = assert(known_by(call)[what], what .. " checks no options")
      for name in pairs(told_elsewhere or {}) do assert.is_truthy(known[name], name) end
      local all = sorted(known, told_elsewhere)
      for _, name in ipairs(refused or {}) do
        assert.is_nil(known[name])
        all[#all + 1] = name
      end
      table.sort(all)
      assert.same(all, documented(path, heading))
    end)
  end

  -- Options that the text of a page lists, without a table.
  local in_prose = {
    { "docs/reference/api/one_by_one.md", "`one_by_one:execute(type, id, [options,] fn, ...)`", "one_by_one:execute",
      function() client:one_by_one():execute("a", "b", {}, 1) end },
    { "docs/reference/api/multi_lock.md", "`holdfast.multi_lock(locks, [options])`", "holdfast.multi_lock",
      function() holdfast.multi_lock({ client:lock("k") }, {}) end },
    { "docs/how-to/servers.md", "Sync", "holdfast.new: sync",
      function() holdfast.new { sync = { replicas = 1 } }:close() end },
  }
  for _, case in ipairs(in_prose) do
    local path, heading, what, call = compat.unpack(case, 1, 4)
    it(("mention the options of %s"):format(what), function()
      local known = assert(known_by(call)[what], what .. " checks no options")
      local section = ("\n" .. pages.read(path) .. "\n#"):match("\n#+ " .. heading:gsub("%p", "%%%0")
        .. "\n(.-)\n#")
      for name in pairs(known) do
        assert.truthy(section:find("`" .. name .. "[`%s]") or section:find("%f[%w]" .. name .. " ="),
          name)
      end
    end)
  end

  it("list the options of idempotent_request, and no others", function()
    local known = require("holdfast.idempotent_request").options
    assert.same(sorted(known), documented("docs/how-to/openresty.md", "Idempotent requests"))
  end)

  -- → the names in a list of rows X(NAME, name) in C
  local function rows_of(path, list)
    local names = {}
    for name in pages.read(path):match(list .. "%(X%)(.-)\n\n"):gmatch "X%([%u_]+, ([%l_]+)" do
      names[name] = true
    end
    return names
  end

  it("list each error code, and no others", function()
    local codes = rows_of("csrc/core/base/failure.h", "HF_CODE_LIST")
    assert.same(sorted(codes, { ok = true, no_memory = true }),
      documented("docs/reference/api/errors.md", "Error codes"))
  end)

  it("list each key of the settings file, and no others", function()
    assert.same(sorted(require("holdfast.command.settings").known),
      documented("docs/reference/connect.md", "The settings file"))
  end)

  -- → the names in a list of strings in C
  local function names_in(path, list)
    local names = {}
    for name in pages.read(path):match(list .. "%[%] = (%b{})"):gmatch('"([%w_]+)"') do
      names[name] = true
    end
    return sorted(names)
  end

  it("list each event of on_event, and no others", function()
    assert.same(names_in("csrc/core/op/observe.c", "names"),
      documented("docs/reference/api/events.md", "Events"))
  end)

  it("list each reason of a loss, and no others", function()
    assert.same(sorted(rows_of("csrc/core/holdfast.h", "HF_LOST_LIST")),
      documented("docs/reference/holds.md", "Losing a lock"))
  end)

  it("list each event printed with --json, and no others", function()
    local printed, pipe = {}, assert(io.popen("cat lua/holdfast/command/*.lua"))
    for text in pipe:read("*a"):gmatch("[:.](%l+%(\"[%l_]+\")") do
      local method, name = text:match("^(%l+)%(\"([%l_]+)\"")
      if method ~= "event" and method ~= "problem" and method ~= "advice" then name = nil end
      if name then printed[name] = true end
    end
    pipe:close()
    assert.same(sorted(printed), documented("docs/reference/command.md", "Events"))
  end)

  it("list each counter, and no others", function()
    local counters = {}
    for name in pairs(client:stats()) do counters[name] = true end
    assert.same(sorted(counters), documented("docs/reference/api/metrics.md", "`client:stats()`"))
  end)

  it("list each metric with its type and labels, and no others", function()
    local labels, family = {}, nil
    for line in client:metrics():gmatch("[^\n]+") do
      local name, kind = line:match("^# TYPE (%S+) (%S+)$")
      if name then
        family = ("%s %s"):format(name, kind)
        labels[family] = {}
      elseif not line:find("^#") then
        for label in (line:match("{(.*)}") or ""):gmatch("([%w_]+)=") do
          if label ~= "le" then labels[family][label] = true end
        end
      end
    end
    local actual, shown = { ["holdfast_dropped_series counter: "] = true }, {} -- only holdfast.metrics has it
    for of, names in pairs(labels) do actual[of .. ": " .. table.concat(sorted(names), " ")] = true end
    for _, cells in ipairs(rows_below("docs/reference/api/metrics.md", "`client:metrics()`")) do
      local names = {}
      for name in cells[3]:gmatch("`([%w_]+)`") do names[name] = true end
      for name in cells[1]:gmatch("`(.-)`") do
        shown[("%s %s: %s"):format(name, cells[2]:match("%S+"), table.concat(sorted(names), " "))] = true
      end
    end
    assert.same(sorted(actual), sorted(shown))
  end)

  it("list each exit code, and no others", function()
    local codes, listed = {}, {}
    for name, code in pairs(exits) do
      if type(code) == "number" and name ~= "OK" then codes[code] = true end
    end
    for _, cells in ipairs(rows_below("docs/reference/command.md", "Exit codes")) do
      for code in cells[1]:gsub("128 %+ n", ""):gsub("0–255", ""):gmatch("%d+") do
        listed[tonumber(code)] = true
      end
    end
    assert.same(sorted(codes), sorted(listed))
  end)

  it("list the environment variables that the code reads, and no others", function()
    local function variables(command)
      local set, pipe = {}, assert(io.popen(command))
      for name in pipe:read("*a"):gmatch("HOLDFAST_%u+") do set[name] = true end
      pipe:close()
      return sorted(set)
    end
    local read = variables("grep -rhoE 'HOLDFAST_[A-Z]+' lua bin csrc/process csrc/posix")
    assert.same(read, variables("grep -hoE 'HOLDFAST_[A-Z]+' docs/reference/connect.md docs/reference/job.md"))
    assert.same(read, variables("grep -hoE 'HOLDFAST_[A-Z]+' docs/holdfast.1"))
  end)
end)

describe("the animated pictures in the documents", function()
  -- → the frames of an animation: { { at = its start, seconds = its duration, text }, … }
  local function frames_of(name)
    local svg = files.read("docs/pictures/" .. name)
    local total, list = tonumber(svg:match("animation: f ([%d.]+)s")), {}
    for share in svg:gmatch("\n([%d.]+)%% { transform") do list[#list + 1] = { at = tonumber(share) / 100 * total } end
    local i = 0
    for line in svg:match('<g id="f">\n(.*)</g>'):gmatch("([^\n]*)\n") do
      i = i + 1
      list[i].text = line:gsub("<[^>]*>", "\n")
      list[i].seconds = (list[i + 1] and list[i + 1].at or total) - list[i].at
    end
    assert.equal(#list, i)
    return list
  end

  it("show the first line of the demo within 2 s", function()
    for _, frame in ipairs(frames_of "demo.svg") do
      if frame.text:find("\n1. 8 processes sell 100 items", 1, true) then return assert.is_true(frame.at <= 2) end
    end
    error("the demo has no first line")
  end)

  it("show no frame for longer than 5 s", function()
    for _, name in ipairs { "demo.svg", "waiting.svg" } do
      local frames = frames_of(name)
      assert.is_true(#frames > 5)
      for _, frame in ipairs(frames) do
        assert.is_true(frame.seconds <= 5, ("%s at %.1f s: %.1f s"):format(name, frame.at, frame.seconds))
      end
    end
  end)

  it("contain no path of the machine that drew them", function()
    local pipe = assert(io.popen("grep -lE 'Entering directory' docs/pictures/*.svg"))
    local found = pipe:read("*a")
    pipe:close()
    assert.equal("", found)
  end)
end)
