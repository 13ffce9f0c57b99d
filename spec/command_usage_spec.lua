-- The help of holdfast, its manual and its completions.

local command = require "spec.support.command"
local holdfast = require "holdfast"
local jobs = require "spec.support.jobs"
local process = require "spec.support.process"

local exits, gives, output_of, read = jobs.exits, jobs.gives, jobs.output_of, jobs.read
local says = jobs.says

describe("holdfast", function()
  before_each(jobs.open)
  after_each(jobs.close)

  describe("help", function()
    it("of every subcommand has usage, grouped options and three examples", function()
      local output = says(0, "", { "--help" })
      for subcommand in output:gmatch("\n  (%l+) ") do
        local text = says(0, "^Usage: holdfast " .. subcommand, { subcommand, "--help" })
        assert.matches("\n\n%u%l+:\n +%-", text, 1, subcommand) -- the options are in groups
        local examples = assert(text:match("\n\nExamples:\n(.*)$"), subcommand)
        assert.equal(3, select(2, examples:gsub("[^\n]*holdfast [^\n]*\n", "")), subcommand)
        for line in (output .. text):gmatch("[^\n]+") do assert.is_true(#line <= 100, line) end
      end
    end)

    it("names the default server, $HOLDFAST_URL and every form of URL", function()
      for _, subcommand in ipairs { "run", "top", false } do
        local text = output_of({ subcommand or "--help", subcommand and "--help" or nil }):gsub("%s+", " ")
        for _, what in ipairs { "redis://127.0.0.1:6379", "$HOLDFAST_URL", "redis://[user:password@]host[:port][/db]",
          "unix:///path", "redis+sentinel://host,host/master", "redis+cluster://host,host", "rediss ", "valkey " } do
          assert.truthy(text:find(what, 1, true), ("%s is not in the help of %s"):format(what, subcommand or "all"))
        end
      end
    end)

    it("lists the exit codes that the subcommand can return", function()
      local function listed(subcommand)
        local text = output_of { subcommand, "--help" }
        local heading, rows = text:match("\n(Exit codes[^\n]*):\n(.-)\n\n")
        local codes = {}
        for code in ("\n" .. rows):gmatch("\n  (%d+)") do codes[#codes + 1] = code end
        return heading .. ": " .. table.concat(codes, " ")
      end
      local own = "Exit codes, besides the command's own: "
      assert.equal(own .. "1 64 69 70 73 75 76 77 79 124 126 128", listed "run")
      assert.equal(own .. "64 73 75 77 126 128", listed "lead")
      assert.equal("Exit codes: 1 64 69 70 73 74 75 76 77 128", listed "hold")
      assert.equal("Exit codes: 1 64 69 70 73 76 77 128", listed "wait")
      assert.equal("Exit codes: 1 64 69 70 73 74 77 128", listed "latch")
    end)

    it("uses the documented exit code for each failure and signal", function()
      local codes = require "holdfast.command.exits"
      for code, exit in pairs { busy = 1, usage = 64, deadlock = 64, unreachable = 69, server = 70,
        conflict = 73, lost = 75, no_quorum = 76, denied = 77, duplicate = 79, unsupported = 70 } do
        assert.equal(exit, codes.of(code), code)
      end
      for signal, exit in pairs { HUP = 129, INT = 130, QUIT = 131, USR1 = 138, USR2 = 140,
        TERM = 143, [9] = 137 } do
        assert.equal(exit, codes.of_signal(signal), signal)
      end
    end)

    it("leaves a --help after -- to the job", function()
      gives(0, "--help\n", { "run", "k", "--", "printf", "%s\\n", "--help" })
    end)

    it("prints the version with --version", function()
      local text = "holdfast " .. holdfast._VERSION .. "\n"
      gives(0, text, { "--version" })
      gives(0, text, { "-V" })
    end)

    it("is the same from -h, --help and `help SUBCOMMAND`", function()
      local overview = output_of { "--help" }
      gives(0, overview, { "-h" })
      gives(0, overview, { "help" })
      local text = output_of { "run", "--help" }
      assert.matches("75          the lock was lost", text, 1, true)
      gives(0, text, { "run", "-h" })
      gives(0, text, { "help", "run" })
      assert.is_nil(output_of({ "bench", "--help" }):find("--worker ", 1, true))
    end)
  end)
end)

describe("the documents of the command", function()
  local SUBCOMMANDS = { "run", "lead", "hold", "wait", "latch", "ls", "show", "top", "deadlocks", "doctor", "break",
    "ping", "bench", "acl" }
  local INTERNAL = { worker = true }

  it("list every exit code", function()
    local man, page = read("docs/holdfast.1"), read("docs/reference/command.md")
    for name, code in pairs(require "holdfast.command.exits") do
      if type(code) == "number" and code > 0 then
        assert.matches("\n%.It [%d ,]*" .. code .. "[ ,\n]", man, 1, name)
        assert.matches("\n| [%d, ]*" .. code .. "[ ,]", page, 1, name)
      end
    end
  end)

  it("list every option, as do the completions", function()
    local man, zsh = read("docs/holdfast.1"), read("completions/_holdfast")
    for _, subcommand in ipairs(SUBCOMMANDS) do
      for _, option in ipairs(require("holdfast.command." .. subcommand).options) do
        local name = option[1]:gsub("%-", "%%-")
        if not INTERNAL[option[1]] then
          assert.matches("%-" .. name .. "[ \n]", man)
          assert.matches("%-%-" .. name .. "[=%[}]", zsh)
        end
      end
    end
  end)

  it("list no option that does not exist", function()
    local known = { help = true, version = true, timeout = true } -- --timeout is refused
    for _, subcommand in ipairs(SUBCOMMANDS) do
      for _, option in ipairs(require("holdfast.command." .. subcommand).options) do
        known[option[1]] = true
        for _, alias in ipairs(option.aliases or {}) do known[alias] = true end
      end
    end
    local man = read("docs/holdfast.1"):gsub("%.Bl[^\n]*", "")
    for name in man:gmatch("%f[%-%w]%-(%l%l[%l-]*)") do
      assert.is_true(known[name], "docs/holdfast.1: " .. name)
    end
    for path, text in pairs { ["docs/reference/command.md"] = read("docs/reference/command.md"),
        ["docs/reference/job.md"] = read("docs/reference/job.md"), ["docs/how-to/cron.md"] = read("docs/how-to/cron.md"),
        ["completions/_holdfast"] = read("completions/_holdfast"),
        ["completions/holdfast.bash"] = read("completions/holdfast.bash") } do
      for name in text:gmatch("%f[%-%w]%-%-(%l[%l-]*)") do
        assert.is_true(known[name], path .. ": " .. name)
      end
    end
  end)

  it("are accepted by mandoc", function()
    if not process.succeeds "command -v mandoc >/dev/null" then return pending("there is no mandoc") end
    local lint = command.other { "mandoc", "-Tlint", "-Wwarning", "docs/holdfast.1" }
    exits(lint, 0)
  end)
end)
