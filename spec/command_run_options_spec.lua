-- holdfast run: its options, and what it says about wrong ones.

local command = require "spec.support.command"
local jobs = require "spec.support.jobs"
local process = require "spec.support.process"
local redis = require "spec.support.redis"

local exists, file, gives, hold = jobs.exists, jobs.file, jobs.gives, jobs.hold
local in_time, run, says, server = jobs.in_time, jobs.run, jobs.says, jobs.server
local with_variables = jobs.with_variables
local unpack = table.unpack or unpack

describe("holdfast run", function()
  before_each(jobs.open)
  after_each(jobs.close)

  describe("with a job", function()
    it("accepts durations with units", function()
      local function lease(text)
        return tonumber((select(2, run { "run", "--lease", text, "k", "-c",
          "redis-cli -s " .. server.path .. " pttl k" })))
      end
      for text, seconds in pairs { ["90"] = 90, ["15.5s"] = 15.5, ["15500ms"] = 15.5, ["5m"] = 300,
        ["1h30m"] = 5400, ["1d"] = 86400, ["2w"] = 1209600, ["1h0.5m"] = 3630 } do
        local ms = lease(text)
        assert.is_true(ms > seconds * 500 and ms <= seconds * 1000, text .. ": " .. ms)
      end
    end)

    it("accepts flock's long option names", function()
      local lock = hold "k"
      assert.equal(9, (run { "run", "--nonblock", "--conflict-exit-code", "9", "k", "--", "true" }))
      assert.equal(9, (run { "run", "--nb", "--conflict-exit-code=9", "k", "--", "true" }))
      assert(lock:release())
    end)

    it("rejects option values that are out of range or malformed", function()
      local options = require "holdfast.command.options"
      local known = require("holdfast.command.run").options
      for _, case in ipairs {
        { "--lease", "0.1", 0.1 }, { "--lease", "1e9", 1e9 }, { "--min-hold", "0", 0 },
        { "--lease", "5ms" }, { "--lease", "0.099" }, { "--lease", "1000000001" },
        { "--wait", "-1" }, { "--wait", "nan" }, { "--wait", "1h30" }, { "--wait", "5x" },
        { "--wait", "" }, { "--wait", "m" }, { "--wait", "1h 2m" },
        { "--wait", ("1s"):rep(33) }, { "--wait", ("1s"):rep(32), 32 },
        { "--busy-exit", "0", 0 }, { "--busy-exit", "255", 255 }, { "--busy-exit", "256" },
        { "--busy-exit", "-1" }, { "--busy-exit", "1.5" }, { "--busy-exit", "x" },
        { "--permits", "1", 1 }, { "--permits", "1e9", 1e9 }, { "--permits", "0" },
        { "--permits", "1.5" }, { "--permits", "1000000001" },
        { "--name", ("n"):rep(127), ("n"):rep(127) }, { "--name", ("n"):rep(128) },
        { "--name", "a b", "a b" }, { "--name", "" }, { "--name", "a\27b" }, { "--url", "" },
      } do
        local name, text, value = case[1], case[2], case[3]
        for _, words in ipairs { { "run", name, text }, { "run", name .. "=" .. text } } do
          local values, message = options.read(known, words, 2)
          if value ~= nil then
            assert.equal(value, values[name:sub(3)], text)
          else
            assert.is_nil(values, text)
            assert.matches("^" .. name:gsub("%p", "%%%0") .. " must be ", message)
          end
        end
      end
      for word, said in pairs { ["--quiet=1"] = "--quiet takes no value",
        ["-nw"] = "-w needs a value: TIME", ["--wait"] = "--wait needs a value: TIME" } do
        assert.equal(said, select(2, options.read(known, { "run", word }, 2)))
      end
      assert.same({ "-" }, select(2, options.read(known, { "run", "-" }, 2)))
      local values = options.read(known, { "run", "-qvw5", "-E", "4" }, 2)
      assert.same({ quiet = true, verbose = true, wait = 5, ["busy-exit"] = 4 }, values)
    end)

    -- → the plan of a run with these words | nil, message
    local function plan_of(...)
      local options, target = require "holdfast.command.options", require "holdfast.command.target"
      local given, words = options.read(require("holdfast.command.run").options, { "run", ... }, 2)
      return with_variables({ HOLDFAST_CONFIG = "/dev/null" }, target.read, assert(given, words), words)
    end

    it("takes keys, lease, wait, grace period and mode from its options", function()
      for _, case in ipairs {
        { { "k" }, { keys = { "k" }, lease = 30, grace = 5, wait = math.huge, mode = false } },
        { { "-n", "--grace", "0", "b", "a" }, { keys = { "b", "a" }, wait = 0, grace = 0 } },
        { { "-w0", "k" }, { wait = 0 } }, { { "-w", "9", "k" }, { wait = 9 } },
        { { "-w", "9", "-w5", "k" }, { wait = 5 } },
        { { "--lease", "3", "k" }, { lease = 3 } },
        { { "--one-by-one", "a:b:c" }, { keys = { "a_b:c" }, biz_type = "a", biz_id = "b:c",
          lease = 30 } },
        { { "--one-by-one", "a:b", "--lease", "3" }, { lease = 3 } },
        { { "-s", "k" }, { mode = "read" } }, { { "-x", "k" }, { mode = "write" } },
        { { "one\nkey" }, { keys = { "one\nkey" } } },
        { { ("k"):rep(131000) }, { keys = { ("k"):rep(131000) } } },
        { { ("k"):rep(131001) }, "the KEYs are longer than 131000 bytes in total" },
        { { ("k"):rep(65500), ("l"):rep(65500) }, "the KEYs are longer than 131000 bytes in total" },
        { { "a", "b\nc" }, "with several KEYs, none may contain a line break" },
        { { "a", "b", "a" }, '"a" is given twice' },
        { { "a", "" }, "KEY is empty" }, { {}, "no KEY" },
        { { "k", "--one-by-one", "a:b" },
          'unexpected argument "k"; --one-by-one takes no KEY; put -- before the command' },
        { { "--one-by-one", ":b" }, '--one-by-one must be TYPE:ID, not ":b"' },
        { { "--one-by-one", "a:" }, '--one-by-one must be TYPE:ID, not "a:"' },
        { { "holdfast_queue:{k}" },
          'KEY must be one that does not begin with "holdfast_queue:", which' },
        { { "-s", "-x", "k" }, "-s and -x cannot be combined" },
        { { "-s", "--one-by-one", "a:b" }, "-s and -x do not work with --one-by-one" },
        { { "-x", "--servers", "redis://a", "k" }, "-s and -x need a single server, not --servers" },
        { { "--permits", "2", "a", "b" }, "--permits takes one KEY" },
        { { "--permits", "2", "--one-by-one", "a:b" }, "--permits does not work with --one-by-one" },
        { { "--permits", "2", "-x", "k" }, "--permits does not work with -s or -x" },
        { { "--permits", "2", "--servers", "redis://a", "k" },
          "--permits needs a single server, not --servers" },
        { { "-n", "-w", "0", "k" }, "-n and -w cannot be combined" },
        { { "-q", "-v", "k" }, "-q and -v cannot be combined" },
      } do
        local plan, message = plan_of(unpack(case[1]))
        if type(case[2]) == "string" then
          assert.is_nil(plan, case[2])
          assert.matches(case[2], message, 1, true)
        else
          assert(plan, message)
          for name, value in pairs(case[2]) do
            assert.same({ name, value }, { name, plan[name] })
          end
        end
      end
    end)

    it("limits its timeouts to a tenth of the lease", function()
      local settings, target = require "holdfast.command.settings", require "holdfast.command.target"
      local client, seen = settings.client, nil
      settings.client = function(_, opts) seen = opts return {} end
      finally(function() settings.client = client end)
      for lease, times in pairs { [0.1] = { 0.1, 0.1 }, [5] = { 0.5, 0.5 }, [20] = { 1, 2 },
        [60] = { 1, 3 } } do
        target.client({ keys = { "k" }, lease = lease, config = {} }, { crash_release = true })
        assert.same({ lease = lease, connect_timeout = times[1], command_timeout = times[2],
          crash_release = true }, seen)
      end
      local keys = {}
      for i = 1, 1025 do keys[i] = "k" .. i end
      local plan = { keys = keys, lease = 5, config = {} }
      assert.same({ nil, "at most 1024 KEYs" }, { target.client(plan) })
      keys[1025] = nil
      assert.is_truthy(target.client(plan))
    end)

    it("refuses --timeout, which flock uses for --wait, and names --wait", function()
      says(64, "use %-%-wait %(%-w%) to limit the wait for the lock, or %-%-max%-runtime to limit the job",
        { "run", "--timeout", "1", "k", "--", "true" })
      says(64, "there is no %-%-timeout; to limit the wait, use %-%-wait %(%-w%)\n",
        { "hold", "--timeout", "1", "k" })
    end)

    it("suggests the intended line if -- is missing", function()
      gives(64, "holdfast run: no -- before the command; did you mean holdfast run k -- sleep …?\n",
        { "run", "-n", "k", "sleep", "1" })
      gives(64, "holdfast lead: no -- before the command; use holdfast lead KEY -- command\n",
        { "lead", "k" })
    end)

    it("suggests the intended subcommand, and prints the help if there is none", function()
      for word, subcommand in pairs { rnu = "run", list = "ls", status = "show", lock = "run" } do
        gives(64, ('holdfast: unknown subcommand "%s"; did you mean holdfast %s? holdfast --help lists all subcommands\n')
          :format(word, subcommand), { word, "k" })
      end
      gives(64, select(2, run { "--help" }), {})
    end)

    it("suggests the intended option", function()
      for option, meant in pairs { ["--nowait"] = " did you mean --no-wait?", ["--unlock"] = "", ["-u"] = "" } do
        gives(64, ("holdfast run: unknown option %s;%s --help lists all options\n"):format(option, meant),
          { "run", option, "k", "--", "true" })
      end
    end)

    it("suggests the intended option if the subcommand is missing", function()
      for word, meant in pairs { ["--verison"] = "--version", ["--hlep"] = "--help", ["-version"] = "--version" } do
        gives(64, ("holdfast: unknown option %s; did you mean %s?\n"):format(word, meant), { word })
      end
      gives(64, "holdfast: options come after the subcommand: holdfast SUBCOMMAND --wait …\n", { "--wait" })
    end)
  end)

  describe("with wrong input", function()
    local TOUCH = { "--", "touch", "FILE" }
    -- The tests of options and plans above have the rest. { words, and the words behind them }
    local cases = {
      ["a missing --"] = { { "run", "k", "touch", "FILE" } },
      ["no command"] = { { "run", "k", "--" } },
      ["an empty key among several"] = { { "run", "k", "" }, TOUCH },
      ["--idempotent for several keys"] = { { "run", "--idempotent", "60", "k", "l" }, TOUCH },
      ["-c together with --"] = { { "run", "-c", "touch FILE", "k" }, TOUCH },
      ["an invalid URL"] = { { "run", "--url", "http://x", "k" }, TOUCH },
      ["--url together with --servers"] = { { "run", "--url", "redis://a", "--servers", "redis://b", "k" }, TOUCH },
      ["an option before the subcommand"] = { { "--url", "redis://h", "run", "k" }, TOUCH },
    }
    for name, case in pairs(cases) do
      it("exits with 64 and one line of output: " .. name, function()
        local given = {}
        for _, words in ipairs(case) do
          for _, word in ipairs(words) do given[#given + 1] = word:gsub("FILE", file "ran") end
        end
        says(64, "^holdfast[^\n]*\n$", given)
        assert.is_false(exists(file "ran"))
        assert.same({}, server:cli("KEYS", "*"))
      end)
    end

    it("exits with 70 on an internal error", function()
      if command.is_static then return pending "the command as one file ignores LUA_INIT" end
      says(70, "^holdfast: [^\n]*broken\n", { "run", "-n", "k", "--", "true", env = {
        LUA_INIT = "package.preload['holdfast.command'] = function() error('broken') end" } })
    end)

    local function refused(expected, words)
      says(expected, "^holdfast run: cannot [^\n]*\n$", words)
      assert.is_false(exists(file "ran"))
    end

    it("exits with 69 if the server hangs, before even a short lease could end", function()
      local hung = redis.start()
      finally(function() hung:stop() end)
      hung:kill("STOP")
      in_time(2.5, function()
        local from = process.now()
        refused(69, { "run", "--lease", "2", "--url", hung:url(), "k", "--", "true",
          env = { HOLDFAST_CONFIG = "/dev/null" } })
        return process.now() - from
      end)
      hung:kill("CONT")
    end)
  end)
end)
