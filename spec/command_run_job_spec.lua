-- holdfast run: its job, from the start to the exit code, and what the command prints about it.

local command = require "spec.support.command"
local jobs = require "spec.support.jobs"
local process = require "spec.support.process"
local redis = require "spec.support.redis"

local PATIENCE, SIGNALS, await, client = jobs.PATIENCE, jobs.SIGNALS, jobs.await, jobs.client
local exists, exits, file = jobs.exists, jobs.exits, jobs.file
local gives, is_free = jobs.gives, jobs.is_free
local read, run, says, sees, server = jobs.read, jobs.run, jobs.says, jobs.sees, jobs.server
local start, start_job, stop, write = jobs.start, jobs.start_job, jobs.stop, jobs.write

describe("holdfast run", function()
  before_each(jobs.open)
  after_each(jobs.close)

  describe("with a job", function()
    it("holds the lock, exits with the job's code, and leaves no key except the token counter", function()
      local child = start_job({ "run", "k" }, "exit 7")
      exits(child, 7)
      assert.equal("ready\n", child:output())
      assert.same({ "redisson_lock_token:{k}" }, server:leaks().keys)
    end)

    it("passes standard input, output and error through to the job", function()
      local script = command.shell_prelude(server) ..
        "\nprintf 'a b' | holdfast run k -- sh -c 'cat; echo err >&2' 2>" .. file "err"
      local child = command.other { "sh", "-c", script }
      exits(child, 0)
      assert.equal("a b", child:output())
      assert.equal("err\n", read(file "err"))
    end)

    it("does not mistake its own output for a signal when its standard descriptors are closed", function()
      local script = command.shell_prelude(server) .. "\nholdfast run -v k -- touch " .. file "ran"
        .. " <&- >&- 2>&-"
      exits(command.other { "sh", "-c", script }, 0)
      assert.is_true(exists(file "ran"))
    end)

    it("passes arguments unchanged, without a shell", function()
      gives(0, "a b|$HOME||--|-n|",
        { "run", "k", "--", "printf", "%s|", "a b", "$HOME", "", "--", "-n" })
    end)

    it("exits with 127 if the command does not exist, with 126 if it cannot be executed", function()
      says(127, '^holdfast run: cannot start "/no/such/command": [^\n]+\n$',
        { "run", "k", "--", "/no/such/command" })
      says(126, '^holdfast run: cannot start "/tmp": ', { "run", "k", "--", "/tmp" })
      says(127, '^holdfast run: cannot start "": ', { "run", "k", "--", "" })
      assert.is_true(is_free())
    end)

    it("gives the job HOLDFAST_KEY, _OWNER, _TOKEN and _URL in its environment", function()
      local output = says(0, "^k %x+%-%x+%-%x+%-%x+%-%x+:1 %d+ unix://", { "run", "k", "-c",
        'echo "$HOLDFAST_KEY $HOLDFAST_OWNER $HOLDFAST_TOKEN $HOLDFAST_URL"' })
      assert.equal(server:cli("GET", "redisson_lock_token:{k}"), output:match(":1 (%d+)"))
    end)

    describe("on a server with a password", function()
      local closed, url, bare, path

      setup(function()
        closed = redis.start { password = "s3cret" }
        url = closed:url()
        bare = url:gsub("//.*@", "//")
      end)
      teardown(function() closed:stop() end)
      before_each(function() path = write(file "password.conf", "url = ", url, "\n") end)

      it("hides the password from the job unless it was in the environment or --pass-url is given", function()
        local by_file = { HOLDFAST_URL = false, HOLDFAST_CONFIG = path }
        local by_variable = { HOLDFAST_URL = url }
        for _, subcommand in ipairs { { "run", "-n" }, { "lead", "--once" } } do
          local name, option = subcommand[1], subcommand[2]
          local function shows(shown, env, ...)
            local words = { name, option, env = env, ... }
            for _, word in ipairs { "k", "--", "sh", "-c", 'echo "$HOLDFAST_URL"' } do
              words[#words + 1] = word
            end
            gives(0, shown .. "\n", words)
          end
          shows(bare, by_file)
          shows(url, by_file, "--pass-url")
          shows(url, by_variable)
          shows(bare, nil, "--url", url)
          shows(url, nil, "--url", url, "--pass-url")
        end
      end)

      it("lets a nested run re-enter through the same settings file, never on a different server", function()
        local inner = command.words("run", "-n", "k", "--", "echo", "inside")
        local function nested(...)
          local words = { "run", env = { HOLDFAST_URL = false, HOLDFAST_CONFIG = path }, "k", "--", ... }
          for _, word in ipairs(inner) do words[#words + 1] = word end
          return words
        end
        gives(0, "inside\n", nested())
        says(77, "NOAUTH.*%-%-pass%-url", nested("env", "HOLDFAST_CONFIG=/dev/null"))
        local output = says(77, "NOAUTH", { "run", "-n", "k", "--", "true",
          env = { HOLDFAST_URL = bare, HOLDFAST_CONFIG = "/dev/null" } })
        assert.is_nil(output:find("--pass-url", 1, true))
      end)
    end)

    it("--url clears HOLDFAST_SERVERS in the job's environment", function()
      gives(0, server:url() .. "|\n", { "run", "--url", server:url(), "k", "--", "sh", "-c",
        'echo "$HOLDFAST_URL|${HOLDFAST_SERVERS-unset}"', env = { HOLDFAST_SERVERS = "unix:///a" } })
    end)

    it("--max-runtime ends the job with TERM, then KILL after the grace period, and exits with 124", function()
      local child = start { "run", "--max-runtime", "0.2", "--grace", "0.2", "--idempotent", "60",
        "--json", "k", "-c", "trap 'echo got TERM' TERM; while :; do sleep 0.02; done" }
      exits(child, 124)
      local output = child:output()
      for _, part in ipairs {
        '"event":"overdue"', '"seconds":0.2', "the job has reached its %-%-max%-runtime of 0.2 s; stopping the job",
        "got TERM", '"event":"ended"[^\n]*"signal":9', '"event":"released"',
      } do assert.matches(part, output) end
      assert.is_nil(output:find('"lost"', 1, true))
      assert.is_true(is_free())
      assert.equal(0, (run { "run", "--max-runtime", "1m", "--idempotent", "60", "k", "--", "true" }))
    end)

    it("does not record success if the job exits with 0 after --max-runtime", function()
      assert.equal(124, (run { "run", "--max-runtime", "0.2", "--idempotent", "60", "k", "--", "sh", "-c",
        "trap 'exit 0' TERM; while :; do sleep 0.02; done" }))
      assert.equal(0, (run { "run", "--idempotent", "60", "k", "--", "true" }))
    end)

    it("exits with 75 if the lock is lost while --max-runtime ends the job", function()
      local child = start_job({ "run", "--max-runtime", "0.3", "--grace", "60", "k" },
        "trap 'redis-cli -s " .. server.path .. " del k >/dev/null; exit 0' TERM; while :; do sleep 0.02; done")
      exits(child, 75)
    end)

    it("ends --min-hold on a signal that would have ended the job, and on no other signal", function()
      local child = start { "run", "-v", "--min-hold", "60", "k", "-c", "exit 3" }
      sees(child, "exited with code 3\n")
      for _, name in ipairs { "WINCH", "CONT", "TSTP" } do child:kill(SIGNALS[name] or name) end
      process.sleep(0.1)
      assert.is_nil((child:status()))
      assert.is_false(is_free())
      stop(child, 3)
      assert.is_true(is_free())
    end)

    it("renews the lock of --one-by-one for longer than its --lease, as `holdfast hold` does", function()
      local all = {}
      for _, words in ipairs { { "hold" }, { "run", "-c", "echo ready; exec sleep 60" } } do
        for _, word in ipairs { "--lease", "1.5", "--one-by-one", "mail:" .. words[1] } do
          words[#words + 1] = word
        end
        all[#all + 1] = start(words)
        sees(all[#all], words[1] == "hold" and "mail_hold " or "ready")
      end
      process.sleep(3)
      for _, child in ipairs(all) do assert.is_nil((child:status()), child:output()) end
      stop(all[1], 0)
      stop(all[2], 143)
    end)

    it("warns if it cannot release the lock, and exits with the job's code", function()
      local doomed = redis.start()
      finally(function() doomed:stop() end)
      local child = start { "run", "--url", doomed:url(), "--json", "k", "-c",
        "echo ready; " .. await "go" .. "; exit 5" }
      sees(child, "ready")
      doomed:kill("KILL")
      write(file "go", "")
      exits(child, 5)
      assert.is_nil(child:output():find('"released"', 1, true), child:output())
      assert.matches('"event":"warning"[^\n]+cannot release[^\n]+the lock will expire in at most 30 s","code":"unreachable"',
        child:output())
    end)

    it("reports a lock whose lease ended during its release as not released, not as lost", function()
      local holding = require "holdfast.command.holding"
      local function release(left, code)
        local warnings = {}
        local out = { problem = function(_, _, _, text) warnings[#warnings + 1] = text end }
        local held, lock = holding.new(nil, {}, out), {}
        function lock:key() return "k" end
        function lock:lost() end
        function lock:remaining() return left end
        function lock:release()
          process.sleep(0.02)
          return nil, "cannot release it", code
        end
        held.locks = { lock }
        return held:release(), table.concat(warnings)
      end
      assert.same({ true, 'cannot release "k" in time; the lock expired with its lease' },
        { release(0.01, "lost") })
      assert.same({ nil, "" }, { release(60, "lost") })
      assert.same({ nil, "" }, { release(-1, "lost") })
      assert.same({ nil, "" }, { release(60, "not_held") })
    end)

    it("gives up the other releases once one fails, and names its error code", function()
      local holding = require "holdfast.command.holding"
      local own, out, warnings = client(), {}, {}
      function out.problem(_, _, fields, text)
        warnings[#warnings + 1] = fields[1][2] .. ": " .. text
      end
      local held = holding.new(own, {}, out)
      held.locks = { own:lock("k"), own:lock("l") }
      for _, lock in ipairs(held.locks) do assert(lock:acquire()) end
      server:cli("ACL", "SETUSER", "default", "-evalsha", "-eval")
      finally(function() server:cli("ACL", "SETUSER", "default", "+evalsha", "+eval") end)
      assert.is_true(held:release())
      assert.matches('^denied: cannot release "l"', warnings[1])
      assert.matches('^denied: cannot release "k": the release before it failed with denied; the lock will expire', warnings[2])
    end)

    it("gives the job no extra descriptor except the one whose closing shows that the job has ended", function()
      local plain = command.other { "setsid", "sh", "-c", "ls /proc/self/fd" }
      exits(plain, 0)
      for _, option in ipairs { "--no-crash-release", "--lease=30" } do
        local _, output = run { "run", option, "k", "-c", "ls /proc/self/fd" }
        if option == "--lease=30" then output = output:gsub("4%d%d\n", "") end
        assert.equal(plain:output(), output)
      end
    end)

    it("-v prints each step", function()
      local text = 'holdfast run: acquired "k" after %d+%.%d%d%d s\nholdfast run: started pid %d+\n'
      local function with(script) return select(2, run { "run", "-v", "k", "-c", script }) end
      assert.matches("^" .. text .. 'holdfast run: exited with code 3\nholdfast run: released "k"\n$', with "exit 3")
      assert.matches("^" .. text .. "holdfast run: terminated by signal 9\n", with "kill -9 $$")
      local child = start_job({ "run", "-v", "k" }, "trap 'exit 0' INT; while :; do sleep 0.02; done")
      stop(child, 0, "INT")
      assert.matches("\nholdfast run: passing on INT\n", child:output())
    end)

    it("--json prints each step as an event", function()
      local events = '^{"event":"acquired"<time>,"key":"k","owner":"[%x:-]+","token":%d+,"waited":[%d.e-]+}\n'
        .. '{"event":"started"<time>,"pid":%d+}\n{"event":"ended"<time>,"exit":3}\n'
        .. '{"event":"released"<time>,"key":"k"}\n$'
      says(3, events:gsub("<time>", ',"time":"%%d%%d%%d%%d%%-%%d%%d%%-%%d%%dT%%d%%d:%%d%%d:%%d%%d%%.%%d%%d%%dZ"'),
        { "run", "--json", "k", "-c", "exit 3" })
      says(64, '^{"event":"error","time":"[^"]+","message":"no %-%- before the command[^"]*","code":"usage","exit":64}\n$',
        { "run", "--json", "k" })
    end)

    -- The job may print text that looks like an event, and may try to write to that descriptor.
    it("--json-fd prints events to a descriptor that the job does not inherit", function()
      local events, errors = file "events", file "errors"
      local words = table.concat(command.words("run", "--json-fd", "7", "k", "--", "sh", "-c"), "' '")
      local child = process.start { "sh", "-c", ([[
        '%s' 'echo "{\"event\":\"lost\"}" >&2; echo plain >&2; echo forged 2>&- >&7; exit 3' 7>%s 2>%s]]):format(words,
        events, errors), env = command.environment(server) }
      child:wait(PATIENCE)
      local names = {}
      for line in io.lines(events) do
        local unsupported = line:find('^{"event":"crash_release_off".*"unsupported"}$') -- on some systems
        if not unsupported then names[#names + 1] = line:match('^{"event":"(%l+)",.*}$') or line end
      end
      assert.same({ "acquired", "started", "ended", "released" }, names)
      assert.matches('^{"event":"lost"}\nplain\n', read(errors))
    end)

    it("refuses a --json-fd that is not open or that the job would inherit", function()
      for _, fd in ipairs { "2", "0", "-1", "77", "x", "3.5", "99999999999" } do
        gives(64, ('holdfast run: --json-fd must be an open descriptor, 3 or higher, not "%s"\n'):format(fd),
          { "run", "--json-fd", fd, "k", "--", "true" })
      end
    end)
  end)
end)
