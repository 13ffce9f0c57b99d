-- What holdfast prints, exits with and measures: its output, ping and bench.

local command = require "spec.support.command"
local jobs = require "spec.support.jobs"
local process = require "spec.support.process"
local sys = require "spec.support.sys"

local PATIENCE, exits, gives, keep = jobs.PATIENCE, jobs.exits, jobs.gives, jobs.keep
local own, says, server = jobs.own, jobs.says, jobs.server
local settings, start = jobs.settings, jobs.start

describe("holdfast", function()
  before_each(jobs.open)
  after_each(jobs.close)

  describe("output", function()
    it("that cannot be written makes each subcommand exit with 74", function()
      local latch = own():latch "parts"
      assert(latch:set(9))
      keep(own():lock "k")
      for _, words in ipairs { "ls", "ls --json", "show k", "top --interval 0.1", "ping", "--version",
        "show --help", "latch count parts", "latch down parts", "deadlocks --all" } do
        local script = command.shell_prelude(server) .. "\nholdfast " .. words
        local child = command.other { "sh", "-c", script .. " >/dev/full" }
        local expected = words:find "deadlocks" and 0 or 74 -- `deadlocks` prints nothing
        exits(child, expected)
        assert.matches(expected == 74 and "^holdfast: cannot write to standard output: [^\n]+\n$" or "^$",
          child:output())
        child = command.other { "sh", "-c", script .. " >&-" }
        exits(child, expected)
        child = command.other { "sh", "-c", script .. " | true" }
        exits(child, 0)
        assert.equal("", child:output())
      end
      assert(latch:delete())
    end)

    it("that cannot be written makes a negative answer exit with 74, but an error keeps its own code", function()
      for words, code in pairs { ["show free"] = 74, ["break --yes free"] = 74,
        ["show --url unix:///no/such.sock k"] = 69, ["show a b"] = 64 } do
        local child = command.other { "sh", "-c", command.shell_prelude(server) .. "\nholdfast "
          .. words .. " >/dev/full" }
        exits(child, code)
      end
    end)

    it("with --json reports an error as one line of JSON, with the time in UTC", function()
      local before = os.time()
      local text = says(64, "", { "ls", "--json", "a", "b", env = { TZ = "XXX-7" } })
      local time = text:match('^{"event":"error","time":"([%d:T-]+)%.%d%d%dZ",'
        .. '"message":"unexpected argument \\"b\\"","code":"usage","exit":64}\n$')
      assert.is_truthy(time, text)
      assert.is_true(time >= os.date("!%Y-%m-%dT%H:%M:%S", before))
      assert.is_true(time <= os.date("!%Y-%m-%dT%H:%M:%S"))
      gives(64, 'holdfast ls: unexpected argument "b"\nusage: holdfast ls [options] [PATTERN]\n',
        { "ls", "a", "b" })
      gives(0, "", { "ls", "--", "-a*" })
    end)
  end)

  describe("ping", function()
    it("prints how long the server took to reply", function()
      says(0, "^answered in [%d.]+ ms %(first answer: [%d.]+ ms%)\n$", { "ping" })
      says(69, "^[^\n]*\n$", { "ping", "--url", "unix:///no/such.sock" })
    end)

    it("waits for a reply as long as the settings file allows", function()
      server:kill("STOP")
      finally(function() server:kill("CONT") end)
      local patient = start { "ping", env = settings "command_timeout = 1m" }
      local usual = start { "ping", env = settings "" }
      exits(usual, 69)
      assert.is_nil((patient:status()))
      server:kill("CONT")
      exits(patient, 0)
      local ms, first = patient:output():match("^answered in ([%d.]+) ms %(first answer: ([%d.]+) ms%)\n$")
      assert.is_true(tonumber(first) > 1000 and tonumber(ms) < tonumber(first), patient:output())
    end)
  end)

  describe("bench", function()
    it("prints a table, and leaves no key for longer than a minute", function()
      says(0, "uncontended +[%d.]+ +%d+\nhand%-off, 2 processes +[%d.]+ +%d+\n$",
        { "bench", "--cycles", "20", "--workers", "2" })
      for _, key in ipairs(server:cli("KEYS", "*")) do
        assert.is_true(server:cli("TTL", key) <= 62) -- the token_ttl is 60 s
      end
    end)

    -- Runs a bench with `workers` workers, all of which end with the exit code `exit`.
    -- → the exit code, the output, the words and the variables of each worker
    local function bench(cycles, workers, exit)
      local child = process.lua {
        args = { command.program, sys.interpreter(), exit, cycles, workers },
        env = { HOLDFAST_URL = server:url():gsub("unix://", "unix://default:secret@"), HOLDFAST_SERVERS = false,
          HOLDFAST_CONFIG = "/dev/null" },
        code = [[
          local process = require "holdfast.process"
          local spawn, own = process.spawn, arg
          arg = { [0] = own[1], [-1] = own[2] }
          process.spawn = function(words, environment, terminal)
            print("worker", table.concat(words, " "), table.concat(environment, " "))
            local all = { "sh", "-c", '"$@"; exit ' .. own[3], "sh" }
            for _, word in ipairs(words) do all[#all + 1] = word end
            return spawn(all, environment, terminal)
          end
          os.exit(require("holdfast.command").main { "bench", "--cycles", own[4], "--workers", own[5] })
        ]],
      }
      local _, code = child:wait(PATIENCE)
      return code, child:output()
    end

    it("prints the time of one cycle and one hand-off, and hides the password from other users", function()
      local from = process.now()
      local code, output = bench(50, 2, 0)
      local most = (process.now() - from) * 1e6
      assert.equal(0, code, output)
      local count = 0
      for microseconds, per_second in output:gmatch " +([%d.]+) +(%d+)\n" do
        count = count + 1
        assert.is_true(microseconds * (count == 1 and 50 or 100) < most, output)
        assert.is_true(math.abs(microseconds * per_second / 1e6 - 1) < 0.02, output)
      end
      assert.equal(2, count, output)
      for words, variables in output:gmatch "worker\t([^\t]+)\t([^\n]+)\n" do
        count = count + 1
        assert.matches(" bench %-%-worker holdfast_bench:[%x-]+ %-%-cycles 50$", words)
        assert.is_nil(words:find("secret", 1, true))
        assert.matches("^HOLDFAST_URL=unix://default:secret@%S+ HOLDFAST_SERVERS=$", variables)
      end
      assert.equal(4, count, output)
    end)

    it("fails if one of its workers fails", function()
      local code, output = bench(5, 1, 3)
      assert.equal(70, code, output)
      assert.matches("holdfast bench: a worker failed\n", output)
    end)

    it("measures the server given with --url, including in its workers", function()
      local code, output = command.run(nil, { "bench", "--cycles", "2", "--workers", "1", "--url",
        server:url(), env = { HOLDFAST_SERVERS = "unix:///no/a.sock,unix:///no/b.sock" } })
      assert.equal(0, code, output)
    end)
  end)
end)
