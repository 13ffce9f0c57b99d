-- holdfast hold.

local command = require "spec.support.command"
local jobs = require "spec.support.jobs"
local redis = require "spec.support.redis"

local SIGNALS, eventually, exits, gives = jobs.SIGNALS, jobs.eventually, jobs.exits, jobs.gives
local in_time, is_free, run, sees = jobs.in_time, jobs.is_free, jobs.run, jobs.sees
local server, stop = jobs.server, jobs.stop

describe("holdfast hold", function()
  before_each(jobs.open)
  after_each(jobs.close)

  -- Starts holdfast hold with these words, and returns when its output matches.
  local function hold(pattern, ...)
    local child = command.start(server, { "hold", ... })
    sees(child, pattern)
    return child
  end

  it("prints key and token once it holds the lock, and releases on a signal", function()
    for _, name in ipairs { "TERM", "INT", "HUP" } do
      local child = hold("^k %d+\n", "k")
      assert.equal("k " .. server:cli("GET", "redisson_lock_token:{k}") .. "\n", child:output())
      assert.is_false(is_free())
      eventually(function() return #server:cli("KEYS", "holdfast_client:*") == 1 end)
      stop(child, 0, SIGNALS[name])
      assert.is_true(is_free())
      assert.equal(0, #server:cli("KEYS", "holdfast_client:*"))
    end
  end)

  it("releases the lock and exits with 74 if it cannot print that it holds it", function()
    for _, output in ipairs { "/dev/full", "&-" } do
      local child = command.other { "sh", "-c", command.shell_prelude(server)
        .. "\nholdfast hold k >" .. output }
      exits(child, 74)
      assert.matches("^holdfast hold: cannot write to standard output: [^\n]+\n$", child:output())
      assert.is_true(is_free())
    end
  end)

  it("holds several keys, all or none", function()
    local child = hold("^a %d+\nb %d+\n", "a", "--", "b")
    stop(child, 0)
    assert.is_true(is_free("a") and is_free("b"))
  end)

  it("waits for a busy lock, or gives up with -n and -w like run", function()
    local first = hold("^k %d+\n", "k")
    assert.equal(1, (run { "hold", "-n", "k" }))
    assert.same({ 4, "" }, { command.run_out(server, { "hold", "-qw", "1", "-E4", "k" }) })
    local second = command.start(server, { "hold", "k" })
    eventually(function() return server:cli("ZCARD", "holdfast_queue:{k}") == 1 end)
    local third = command.start(server, { "hold", "k" })
    eventually(function() return server:cli("ZCOUNT", "holdfast_queue:{k}", "(0", "+inf") == 2 end)
    stop(third, 143)
    first:kill("TERM")
    sees(second, "^k %d+\n")
    stop(second, 0)
  end)

  it("exits with 75 when the lock is lost", function()
    local child = hold("^k %d+\n", "--lease", "9", "k")
    server:cli("DEL", "k")
    exits(child, 75)
    assert.matches('lost the lock "k": its key was deleted on the server; exiting\n',
      child:output(), 1, true)
  end)

  it("prints a key with a line break as one line, and events with --json", function()
    local child = hold("a\\x0ab %d+\n", "--json", "a\nb")
    stop(child, 0, "USR1")
    assert.matches('"event":"acquired".*"event":"signal","time":"[^"]+","signal":"USR1"}\n{"event":"released"',
      child:output())
  end)

  it("exits with 75 before the lease can end if the server is gone", function()
    local doomed = redis.start()
    finally(function() doomed:stop() end)
    in_time(4, function()
      local child = hold("\nk %d+\n", "--url", doomed:url(), "--lease", "4", "--json", "k")
      doomed:kill("STOP")
      sees(child, '"reason":"unreachable","left":')
      local left = tonumber(child:output():match('"left":(%-?[%d.e-]+)'))
      doomed:kill("CONT")
      exits(child, 75)
      return 4 - left
    end)
  end)

  it("exits with 64 without a key", function() gives(64, "holdfast hold: no KEY\n", { "hold" }) end)
end)
