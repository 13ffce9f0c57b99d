local command = require "spec.support.command"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local terminal = require "spec.support.terminal"
local texts = require "holdfast.text"
local waiting = require "holdfast.command.waiting"

local PATIENCE = 40

local eventually = process.eventually

describe("the status line of a wait", function()
  it("shows the waiter's place in the queue", function()
    local places = {}
    for i, place in ipairs { 1, 2, 3, 4, 11, 12, 13, 21, 102, 111 } do
      places[i] = waiting.place(place)
    end
    assert.same({ "next in line", "2nd in line", "3rd in line", "4th in line", "11th in line", "12th in line",
      "13th in line", "21st in line", "102nd in line", "111th in line" }, places)
  end)

  it("shows minutes and seconds, and hours from the first hour on", function()
    local clocks = {}
    for i, seconds in ipairs { 0.5, 9.99, 60, 754.3, 3599, 3723 } do
      clocks[i] = waiting.clock(seconds)
    end
    assert.same({ "0:00", "0:09", "1:00", "12:34", "59:59", "1:02:03" }, clocks)
  end)

  it("is shortened to the terminal's width without losing place and time", function()
    local function line(columns)
      return (waiting.line('waiting for "backup:db"', "held by web-3 pid 18004 nightly-backup", 2, 9, columns))
    end
    assert.equal('waiting for "backup:db": held by web-3 pid 18004 nightly-backup, 2nd in line, 0:09', line())
    assert.equal('waiting for "backup:db": held by web-3 pid 18004 nightly-ba…, 2nd in line, 0:09', line(79))
    assert.equal('waiting for "backup:db": …, 2nd in line, 0:09', line(45))
    assert.equal("…, 2nd in l", line(11))
    assert.equal('waiting for "备份": 0:09', (waiting.line('waiting for "备份"', nil, nil, 9, 24)))
    assert.equal('waiting for "备…0:09', (waiting.line('waiting for "备份"', nil, nil, 9, 20)))
  end)

  it("escapes control characters", function()
    assert.equal('waiting for "a\\x1b[2J\\x0a": held by b\\x07, 0:09',
      (waiting.line('waiting for "a\27[2J\n"', "held by b\7", nil, 9)))
  end)
end)

it("a wait for several locks reports the next busy lock once the reported one is free", function()
  local core, locks = require "holdfast.core", require "holdfast.command.locks"
  local names = require "holdfast.names"
  local is_quorum, read_name = core.client.is_quorum, names.read
  local read, waiters = locks.read, locks.waiters
  finally(function()
    core.client.is_quorum, names.read = is_quorum, read_name
    locks.read, locks.waiters = read, waiters
  end)
  local held = { a = "me:1", b = "other:1" }
  core.client.is_quorum = function() return false end
  locks.read = function(_, key)
    return { key = key, owner = held[key], held = held[key] ~= nil, waiters = key == "b" and 1 or 0 }
  end
  locks.waiters = function()
    return { { owner = "them:1", place = 1 }, { owner = held.b and "me:1" or "them:2", place = 2 } }
  end
  local poll = waiting.for_locks({ "a", "b" }, "lock", "me", "held")
  local function seen()
    local found = poll {}
    return { found.key, found.place, found.state }
  end
  names.read = function() end
  assert.same({ "b", 2, "held by other:1" }, seen())
  held.b = nil
  assert.same({ "a" }, seen())
  held.a = "third:1"
  assert.same({ "a", nil, "held by third:1" }, seen())
end)

describe("a wait", function()
  local server, client, holder

  setup(function() server = redis.start() end)
  teardown(function() server:stop() end)
  before_each(function()
    server:cli("FLUSHALL")
    client = holdfast.new(server:url())
  end)
  after_each(function() client:close() end)

  local function start(...) return command.start(server, { ... }) end

  -- Starts a holder of the key, and waits until its name is published.
  local function hold(...)
    holder = start("hold", "--name", "nightly-backup", ...)
    assert(holder:wait_output(" %d+\n", PATIENCE), holder:output())
    eventually(function() return #server:cli("KEYS", "holdfast_client:*") == 1 end)
  end

  local function end_by_signal(children)
    for _, child in pairs(children) do child:kill("TERM") end
    for _, child in pairs(children) do assert(child:wait(PATIENCE)) end
  end

  describe("without a terminal", function()
    it("is reported by every subcommand that waits, as an event with --json or a line with -v", function()
      hold("k")
      local first = start("run", "k", "--", "true")
      eventually(function() return client:lock("k"):info().waiters == 1 end)
      assert(client:latch("gate"):set(2))
      local all = { lead = start("lead", "--json", "k", "--", "true") }
      eventually(function() return client:lock("k"):info().waiters == 2 end)
      all.wait, all.latch = start("wait", "--json", "k"), start("latch", "--json", "wait", "gate")
      all.words = start("run", "-v", "k", "--", "true")
      local who = ('"host":"[^"]+","pid":%d,"name":"nightly%%-backup","held_for":[%%d.]+,'):format(holder.pid)
      for name, pattern in pairs {
        lead = '^{"event":"waiting","time":"[^"]+","key":"k","owner":"[^"]+",' .. who .. '"place":2,"waited":0%.%d+}\n$',
        wait = '^{"event":"waiting","time":"[^"]+","key":"k","owner":"[^"]+",' .. who .. '"waited":0%.%d+}\n$',
        latch = '^{"event":"waiting","time":"[^"]+","key":"gate","count":2,"waited":0%.%d+}\n$',
        words = ('^holdfast run: waiting for "k": held by %%S+ pid %d nightly%%-backup for %%d+ m?s, 3rd in line, 0:00\n$')
          :format(holder.pid),
      } do
        assert(all[name]:wait_output(pattern, PATIENCE), all[name]:output())
      end
      end_by_signal(all)
      assert.equal("", first:output())
      end_by_signal { holder, first }
    end)

    it("names which of several locks is busy, or how many permits are taken", function()
      hold("b")
      local several = start("run", "-v", "c", "a", "b", "--", "true")
      local pool = client:semaphore("pool", { permits = 2 })
      assert(pool:acquire(2))
      local permit = start("hold", "--permits", "2", "-v", "pool")
      assert(several:wait_output('waiting for "b": held by %S+ pid %d+ nightly%-backup for %d+ m?s, next in line, 0:00\n', PATIENCE),
        several:output())
      assert(permit:wait_output('waiting for "pool": 2 of 2 permits taken, next in line, 0:00\n', PATIENCE),
        permit:output())
      end_by_signal { several, permit, holder }
    end)

    it("is reported in words that fit its subcommand and kind of lock", function()
      hold("k")
      local held = holder
      local children = {
        start("hold", "-x", "rw"), start("hold", "--one-by-one", "mail:7"),
        start("lead", "-v", "k", "--", "true"),
      }
      for i = 1, 2 do assert(children[i]:wait_output(" %d+\n", PATIENCE), children[i]:output()) end
      assert(client:latch("gate"):set(2))
      local who = "%S+ pid %d+ ?[^ ]*"
      for pattern, words in pairs {
        ['^holdfast hold: waiting for "rw": held by ' .. who .. " %(one writer%) for %d+ m?s, next in line, 0:00\n"] = { "hold", "-s", "rw" },
        ['^holdfast hold: waiting for "mail:7": held by ' .. who .. " for %d+ m?s, next in line, 0:00\n"] =
          { "hold", "--one-by-one", "mail:7" },
        ['^holdfast wait: waiting until "gate" is free: %l* ?2 ?%l*, 0:00\n'] = { "wait", "gate" },
        ['^holdfast latch: waiting for the latch "gate": 2 left, 0:00\n'] = { "latch", "wait", "gate" },
      } do
        local child = start(words[1], "-v", (table.unpack or unpack)(words, 2))
        children[#children + 1] = child
        assert(child:wait_output(pattern, PATIENCE), child:output())
      end
      local leader = ('holdfast lead: waiting to lead "k": led by %%S+ pid %d nightly%%-backup for %%d+ m?s, next in line, 0:00\n')
        :format(held.pid)
      assert(children[3]:wait_output(leader, PATIENCE), children[3]:output())
      end_by_signal(children)
      end_by_signal { held }
    end)

    it("names the server that does not respond", function()
      server.process:kill("STOP")
      local child = start("run", "--json", "k", "--", "true")
      local seen = child:wait_output('"event":"waiting","time":"[^"]+","key":"k","waited":[%d.]+,"code":"unreachable",'
        .. '"message":"no answer from unix:[^"]+"}\n', PATIENCE)
      server.process:kill("CONT")
      assert.is_truthy(seen, child:output())
      assert.same({ "exit", 0 }, { child:wait(PATIENCE) }, child:output())
    end)

    it("draws nothing on a dumb terminal or with -q", function()
      hold("k")
      local function output(term, option)
        local words = table.concat(command.words("run", option, "--wait", "0.9", "k", "--", "true"), "' '")
        local child = process.start { "script", "-qec", "'" .. words .. "'", "/dev/null",
          env = command.environment(server, { TERM = term }) }
        assert.same({ "exit", 1 }, { child:wait(PATIENCE) }, child:output())
        return child:output()
      end
      assert.matches("^holdfast run: cannot acquire[^\r\n]*\r\n$", output("dumb", "--lease=30"))
      assert.equal("", output("xterm", "-q"))
      assert.matches('\rwaiting for "k".*\27%[K', output("xterm", "--lease=30"))
      end_by_signal { holder }
    end)

    it("ends at once even if the process that prints its reports is stopped", function()
      hold("k")
      local child = start("run", "-v", "k", "--", "true")
      assert(child:wait_output("next in line", PATIENCE), child:output())
      local pipe = assert(io.popen("pgrep -P " .. child.pid))
      local reporter = tonumber(pipe:read("*l"))
      pipe:close()
      process.signal(reporter, "STOP")
      end_by_signal { holder }
      assert.same({ "exit", 0 }, { child:wait(PATIENCE) })
      assert.is_false(process.signal(reporter, 0) == true)
    end)
  end)

  describe("on a terminal", function()
    if not terminal.is_there() then return pending("there is no tmux") end

    local MAX_HELD = 120 -- seconds; the lock was held for less before the wait
    local shell

    before_each(function() shell = terminal.open(command.shell_prelude(server), 80, 12) end)
    after_each(function() shell:close() end)

    -- Returns the expected line, from what a second client sees, cut to `columns`.
    local function expected(place, columns)
      local text = select(2, command.run(server, { "show", "--json", "backup:db" }))
      local host, pid, name = text:match('"host":"([^"]+)","pid":(%d+),"name":"([^"]+)"')
      local state = ("held by %s pid %d %s for "):format(host, pid, name)
      local function is_right(line, waited)
        for held = waited, waited + MAX_HELD do
          local at = state .. texts.duration(held)
          if waiting.line('waiting for "backup:db"', at, place, waited, columns) == line then return true end
        end
      end
      return function(screen)
        for line in screen:gmatch("[^\n]+") do
          local minutes, seconds = line:match("(%d+):(%d%d)$")
          if minutes and is_right(line, minutes * 60 + seconds) then return line end
        end
      end
    end

    -- Returns whether the screen has only the typed line and these lines.
    local function shows_only(lines)
      return function(text) return text:find("^%$ holdfast [^\n]+\n" .. lines .. "%$ *\n*$") ~= nil end
    end

    it("shows one line that fits the terminal and is removed when the job starts", function()
      hold("backup:db")
      local first = start("run", "backup:db", "--", "true")
      eventually(function() return client:lock("backup:db"):info().waiters == 1 end)
      shell:types("holdfast run backup:db -- echo job; echo code $?", "Enter")
      local monitor = server:monitor()
      assert.is_true(#shell:sees(expected(2, 77)) < 80)
      shell:resize(50, 12)
      assert.is_true(#shell:sees(expected(2, 47)) < 52)
      assert.equal(1, select(2, shell:screen():gsub("waiting for", "")))
      end_by_signal { first }
      shell:sees(expected(1, 47))
      local looks, from, till = 0, nil, nil
      for _, entry in ipairs(monitor:commands()) do
        if not entry.script and entry.args[1] == "ZRANGEBYSCORE" and entry.args[#entry.args] == "100" then
          looks, from, till = looks + 1, from or entry.time, entry.time
        end
      end
      monitor:close()
      assert(looks <= till - from + 2, ("%d looks in %.1f s"):format(looks, till - from))
      end_by_signal { holder }
      shell:sees("job\ncode 0\n%$ *\n*$")
      assert.is_nil(shell:screen():find("waiting", 1, true))
    end)

    it("removes its line before it prints a message", function()
      hold("backup:db")
      assert(client:latch("gate"):set(2))
      for words, message in pairs {
        ["run -w 0.8 backup:db -- true"] = "holdfast run: cannot acquire",
        ["wait -w 0.8 backup:db"] = "holdfast wait: \"backup:db\" is held by",
        ["latch wait -w 0.8 gate"] = "holdfast latch: cannot wait for \"gate\"",
      } do
        shell:types("clear; holdfast " .. words .. "; echo code $?", "Enter")
        shell:sees(message .. ".*\ncode 1\n%$ *\n*$")
        local text = shell:screen()
        assert.is_truthy(text:find("^" .. message) or text:find("^%$ clear; [^\n]+\n" .. message), text)
        assert.is_nil(text:find("waiting", 1, true), text)
      end
      assert(client:latch("gate"):delete())
      end_by_signal { holder }
    end)

    it("shows its line if only standard error is the terminal", function()
      hold("backup:db")
      shell:resize(50, 12)
      shell:types("holdfast run backup:db -- echo job | cat", "Enter")
      assert.is_true(#shell:sees(expected(1, 47)) < 52)
      end_by_signal { holder }
      shell:sees(shows_only "job\n")
    end)

    it("removes its line when TERM, HUP or QUIT ends it", function()
      hold("backup:db")
      for _, name in ipairs { "TERM", "HUP", "QUIT" } do
        shell:types("clear; holdfast wait backup:db", "Enter")
        shell:sees('waiting until "backup:db" is free: held by')
        local tty = shell:tmux("display", "-p", "-t", "spec", "#{pane_tty}"):match("pts/%d+")
        local kill = command.other { "pkill", "-o", "-" .. name, "-t", tty, "-f", " wait " }
        assert.same({ "exit", 0 }, { kill:wait(PATIENCE) })
        shell:sees("%$ *\n*$")
        assert.is_nil(shell:screen():find("waiting", 1, true), name)
      end
      end_by_signal { holder }
    end)

    it("says that the server does not respond, and continues", function()
      hold("backup:db")
      shell:types("holdfast run backup:db -- true; echo code $?", "Enter")
      shell:sees("next in line")
      server.process:kill("STOP")
      local from = process.now()
      shell:sees('waiting for "backup:db": no answer from unix:.*, 0:%d%d\n')
      assert.is_true(process.now() - from < 15) -- the wait itself allows a server 20 s
      server.process:kill("CONT")
      shell:sees("next in line")
      shell:types("C-c")
      shell:sees(shows_only "code 130\n")
      end_by_signal { holder }
    end)

    it("of holdfast wait removes its line on Ctrl-C, and draws none in the background", function()
      hold("backup:db")
      shell:types("holdfast wait backup:db", "Enter")
      shell:sees('waiting until "backup:db" is free: held by')
      shell:types("C-c")
      shell:sees(shows_only "^?C?\n*")
      shell:types("clear; holdfast wait backup:db & holdfast wait -q -w 1.5 backup:db; echo code $?; kill %1", "Enter")
      shell:sees("^[^\n]*%d+\ncode 1\n")
      assert.is_nil(shell:screen():find("waiting", 1, true))
      end_by_signal { holder }
    end)
  end)
end)
