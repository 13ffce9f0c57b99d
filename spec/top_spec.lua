-- holdfast top: the table in a pipe, and the live view in a real terminal.

local command = require "spec.support.command"
local dkjson = require "dkjson"
local files = require "spec.support.files"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local terminal = require "spec.support.terminal"
local width = require "holdfast.command.width"

local PATIENCE = 40
local UUID = "b983c153-7421-869a-addb-44fb92259a1b"

-- arg = owner, for how many seconds it has held the lock, for how many seconds a waiter has waited
-- ("": no waiter), the waiter
local FORGE = [[
  local time = redis.call('TIME')
  local us = time[1] * 1000000 + time[2]
  redis.call('HSET', KEYS[1], ARGV[1], 1)
  redis.call('PEXPIRE', KEYS[1], 600000)
  redis.call('SET', 'redisson_lock_token:{' .. KEYS[1] .. '}',
    string.format('%.0f', math.floor((us - ARGV[2] * 1000000) / 8) * 8))
  if ARGV[3] ~= '' then
    redis.call('ZADD', 'holdfast_queue:{' .. KEYS[1] .. '}', string.format('%.0f', us - ARGV[3] * 1000000), ARGV[4])
  end
]]

describe("holdfast top", function()
  local server, client

  setup(function()
    server = redis.start()
    client = holdfast.new(server:url())
  end)
  teardown(function()
    client:close()
    server:stop()
  end)
  after_each(function() server:cli("FLUSHALL") end)

  local function forge(key, number, held, wait)
    server:cli("EVAL", FORGE, 1, key, ("%s:%d"):format(UUID, number), held, wait or "",
      ("1l%s:%d:1"):format(UUID, number + 100000))
  end

  local function name_holders()
    server:cli("SET", "holdfast_client:" .. UUID, "web-3 4711 nightly")
  end

  describe("in a pipe", function()
    local function run(...)
      local code, output = command.run(server, { "top", ... })
      assert.equal(0, code, output)
      return output
    end

    it("prints a plain table once, longest wait first", function()
      name_holders()
      forge("idle", 1, 4000)
      forge("short", 2, 3, 2)
      forge("long", 3, 400, 290)
      for _, output in ipairs { run(), run "--once" } do
        assert.matches("^3 locks, 2 waiters\nKEY +HOLDER +HELD +WAITERS +WAIT +TTL\n"
          .. "long +web%-3 pid 4711 nightly +[67]m%d*s? +1 +[45]m%d*s? +9m%d*s?\n"
          .. "short +web%-3 pid 4711 nightly +%d+m?s +1 +%d+m?s +9m%d*s?\n"
          .. "idle +web%-3 pid 4711 nightly +1h[67]m +0 +%- +9m%d*s?\n$", output)
      end
    end)

    it("--json prints one JSON object per lock in the same order", function()
      forge("short", 2, 3, 2)
      forge("long", 3, 400, 290)
      local list = {}
      for line in run("--json"):gmatch("[^\n]+") do list[#list + 1] = dkjson.decode(line) end
      assert.same({ 2, "long", "short" }, { #list, list[1].key, list[2].key })
      assert.is_true(list[1].waits >= 290 and list[1].held_for >= 400)
    end)

    it("prints only locks that match its pattern", function()
      forge("a1", 1, 1)
      forge("b1", 2, 1)
      assert.matches("^1 lock, 0 waiters\nKEY [^\n]+\na1 [^\n]*\n$", run "a*")
      assert.equal("0 locks, 0 waiters\n", run "c*")
    end)

    it("starts over if a different server replies in the middle of its search", function()
      local own, directory = redis.start(), process.directory()
      finally(function() own:stop() process.remove(directory) end)
      own:cli("EVAL", "for i = 1, 2000 do redis.call('SET', i, i) end", 0) -- several pages
      local top = process.lua {
        args = { own:url(), directory .. "/go" }, env = { HOLDFAST_CONFIG = "/dev/null" }, code = [[
          local pages, process = require "holdfast.pages", require "spec.support.process"
          local scan, waits = pages.scan, true
          function pages.scan(client, node, cursor, pattern, key_type, count)
            local reply, message, code, fits = scan(client, node, cursor, pattern, key_type, count)
            if key_type == "hash" and waits then
              waits = false
              print "looks" io.stdout:flush()
              process.eventually(function() return io.open(arg[2]) end)
            end
            return reply, message, code, fits
          end
          os.exit(require("holdfast.command.top").main { "top", "--url", arg[1] })
        ]],
      }
      assert(top:wait_output("looks", PATIENCE), top:output())
      own:restart(false)
      for i = 1, 64 do
        own:cli("HSET", "k" .. i, UUID .. ":1", 1)
        own:cli("PEXPIRE", "k" .. i, 600000)
      end
      assert(io.open(directory .. "/go", "w")):close()
      assert.same({ "exit", 0 }, { top:wait(PATIENCE) }, top:output())
      assert.matches("^looks\n64 locks, 0 waiters\n", top:output())
    end)

    it("prints no time held or waited that the server does not know", function()
      local java = "b983c153-7421-469a-addb-44fb92259a1b:33"
      server:cli("HSET", "java", java, 1)
      server:cli("PEXPIRE", "java", 60000)
      assert.matches("\njava +" .. java:gsub("%-", "%%-") .. " +%- +0 +%- +%d%ds\n$", run())
    end)

    it("reads locks with waiters first", function()
      for i = 1, 100 do forge("idle:" .. i, i, 1) end
      forge("waits", 101, 3, 2)
      local monitor, first = server:monitor(), nil
      assert.matches("^101 locks, 1 waiter\nKEY [^\n]+\nwaits ", run())
      for _, entry in ipairs(monitor:commands()) do
        local words = table.concat(entry.args, " ")
        first = first or words:match "%f[%w]waits%f[%W]" or words:match "idle:%d"
      end
      monitor:close()
      assert.equal("waits", first)
    end)

    it("lists a mutex while somebody waits for it", function()
      for i, name in ipairs { "idle", "taken" } do
        server:cli("SET", name, ("%s:%d"):format(UUID, i), "PX", 600000)
      end
      server:cli("ZADD", "holdfast_queue:{taken}", ("%.0f"):format((server:cli("TIME")[1] - 5) * 1e6),
        ("1l%s:9:1"):format(UUID))
      assert.matches("^1 lock, 1 waiter\nKEY [^\n]+\ntaken [^\n]* 1 +[5-9]s +9m%d*s?\n$", run())
    end)

    it("prints long keys in full", function()
      local key = ("k"):rep(300)
      forge(key, 1, 1)
      assert.truthy(run():find("\n" .. key .. "  " .. UUID, 1, true))
    end)
  end)

  describe("on a terminal", function()
    if not terminal.is_there() then return pending("there is no tmux") end

    local shell

    local function sees(pattern) return shell:sees(pattern) end
    local function types(...) shell:types(...) end

    before_each(function() shell = terminal.open(command.shell_prelude(server), 80, 24) end)
    after_each(function() shell:close() end)

    local function start(words)
      types("clear; holdfast top --interval 0.1 " .. (words or ""), "Enter")
      sees("^holdfast top   %d+ lock.*q quit")
    end

    local function quit()
      types("q")
      sees("%$ *\n*$")
    end

    it("updates the table live, sorts it, and quits on a key", function()
      forge("aaa", 1, 300)
      start()
      sees("1 lock, 0 waiters\n\nKEY [^\n]+\naaa .*sort by")
      forge("bbb", 2, 100)
      sees("2 locks, 0 waiters\n.*\naaa .*\nbbb ") -- the lock held for longest is first
      local waiter = command.start(server, { "run", "bbb", "--", "true" })
      sees("2 locks, 1 waiter\n.*\nbbb .*\naaa ")
      types("h")
      sees("\naaa .*\nbbb ")
      types("n")
      sees("\nbbb .*\naaa ")
      types("k")
      sees("\naaa .*\nbbb ")
      server:cli("PEXPIRE", "bbb", 500000)
      types("t")
      sees("\nbbb .*\naaa ")
      waiter:kill("TERM")
      types("C-z")
      sees("Stopped")
      types("fg", "Enter")
      sees("2 locks, 0 waiters\n")
      quit()
      types("stty -a | grep -o ' icanon'; echo done", "Enter")
      sees("icanon\ndone")
    end)

    it("counts a waiter that joins Redisson's list while it is running", function()
      forge("booking", 1, 1)
      start()
      sees("1 lock, 0 waiters\n")
      server:cli("RPUSH", "redisson_lock_queue:{booking}", UUID .. ":7")
      server:cli("ZADD", "redisson_lock_timeout:{booking}", ("%.0f"):format((os.time() + 600) * 1000), UUID .. ":7")
      sees("1 lock, 1 waiter\n.*\nbooking [^\n]+ 1 +%- +%d")
      quit()
    end)

    it("exits on Ctrl-C, a signal or the end of input, and restores the terminal", function()
      local function ends(how, code)
        types("clear; holdfast top --interval 0.1; echo code $?", "Enter")
        sees("^holdfast top   0 locks.*sort by")
        how()
        sees("code " .. code .. "\n")
        types("clear; stty -a | grep -o ' icanon'; echo done", "Enter")
        sees("icanon\ndone")
      end
      local function signal(name)
        return function()
          local tty = shell:tmux("display", "-p", "-t", "spec", "#{pane_tty}"):match("pts/%d+")
          local kill = command.other { "pkill", "-" .. name, "-t", tty, "-f", " top " }
          assert.same({ "exit", 0 }, { kill:wait(PATIENCE) })
        end
      end
      ends(function() types("C-c") end, 0)
      ends(signal "TERM", 143)
      ends(signal "HUP", 129)
      ends(signal "USR2", 140)
    end)

    it("--once prints the table once, shortened to the terminal's width", function()
      forge(("k"):rep(300), 1, 1)
      types("clear; holdfast top --once; echo code $?", "Enter")
      sees("^1 lock, 0 waiters\nKEY [^\n]+ TTL\nk+…k+ [^\n]+s\ncode 0\n%$")
    end)

    it("continues through an outage, and shows the age of its table", function()
      local directory = process.directory()
      finally(function() process.remove(directory) end)
      files.write(directory .. "/conf", "command_timeout = 0.2\nconnect_timeout = 0.2\n")
      forge("aaa", 1, 1)
      shell:resize(200, 24)
      types("export HOLDFAST_CONFIG=" .. directory .. "/conf", "Enter")
      start "'[a-b]*'"
      sees("1 lock, 0 waiters\n.*\naaa .*sort by")
      server:kill("STOP")
      sees("0 waiters   [1-9]%d* s old: [^\n]*annot .*\naaa ")
      types("h") -- it still reacts to keys
      server:kill("CONT")
      sees("0 waiters\n.*\naaa ")
      server:cli("DEL", "aaa")
      sees("0 locks, 0 waiters\n")
      forge("ccc", 2, 1)
      forge("bbb", 3, 1)
      sees("1 lock, .*\nbbb ")
      server:cli("DEL", "bbb")
      server:cli("RPUSH", "bbb", "no lock any more")
      sees("0 locks, 0 waiters\n")
      quit()
    end)

    it("shows as many locks as fit the screen, and scrolls", function()
      for i = 1, 30 do forge(("lock:%02d"):format(i), i, 1) end
      start()
      types("k")
      sees("^holdfast top   30 locks, [^\n]*\n\nKEY [^\n]*\nlock:01 .*\nlock:19 [^\n]*\n1%-19 of 30\nsort by: ")
      types("Down", "Down")
      sees("\nKEY [^\n]*\nlock:03 .*\nlock:21 [^\n]*\n3%-21 of 30\n")
      types("Up")
      sees("\nKEY [^\n]*\nlock:02 ")
      types("PageDown")
      sees("\nlock:30 [^\n]*\n12%-30 of 30\n")
      types("Home")
      sees("\n1%-19 of 30\n")
      types("End")
      sees("\n12%-30 of 30\n")
      shell:resize(80, 9)
      sees("\nlock:15 [^\n]*\n12%-15 of 30\nsort by: [^\n]*\n*$")
      shell:resize(80, 40)
      sees("\nKEY [^\n]*\nlock:01 .*\nlock:30 [^\n]*\n\n+sort by: ")
      quit()
    end)

    it("filters by a part of the key as it is typed, ignoring case", function()
      for i = 1, 25 do forge("Order:" .. i, i, 1) end
      for i = 1, 3 do forge("stöck:" .. i, 30 + i, 1) end
      start()
      types("/", "ST")
      sees("\nfilter: ST_   3 of 28 locks\nKEY [^\n]*\nstöck:")
      types("ö", "o")
      sees("\nfilter: STöo_   0 of 28 locks\nKEY [^\n]*\n\n")
      types("BSpace", "BSpace")
      sees("\nfilter: ST_   3 of 28 ")
      types("C-u", "q", "BSpace", "order:1", "Enter") -- a q in the text ends nothing
      sees("\nfilter: order:1   11 of 28 locks\n.*\nsort by: ")
      types("k")
      sees("\nOrder:1 .*\nOrder:10 .*\nOrder:19 ")
      types("Escape")
      sees("28 locks, 0 waiters\n\nKEY .*\n1%-19 of 28\n")
      quit()
    end)

    describe("in colour", function()
      -- Waits for the pattern on the screen with its colours. tmux ends a colour in several ways.
      local function coloured(pattern)
        return shell:sees(function()
          return (shell:screen("-e"):gsub("\27%[0m", ""):gsub("\27%[[34]9m", "")):match(pattern)
        end)
      end

      it("highlights the header, long waits and leases that were not renewed", function()
        forge("calm", 1, 1)
        forge("waits", 2, 10, -600) -- a place in the future, whose wait does not grow
        forge("waits long", 3, 1000, 500)
        start()
        coloured("\27%[1m *KEY")
        coloured("\nwaits long [^\n]*\27%[31m +1[^\n]*\27%[31m *[89]m")
        coloured("\nwaits  [^\n]*\27%[33m +1[^\n]*\27%[33m +0ms")
        coloured("\ncalm +[^\n\27]+\n")
        server:cli("PEXPIRE", "calm", 150000)
        coloured("\ncalm +[^\n]*\27%[31m *2m%d+s")
        quit()
      end)

      it("uses no colour if NO_COLOR is set", function()
        forge("waits long", 3, 100, 50)
        types("export NO_COLOR=1", "Enter")
        start()
        sees("\nwaits long ")
        assert.is_nil(shell:screen("-e"):find("\27", 1, true))
        quit()
      end)
    end)

    -- Waits for rows of more than `least` columns, whose cells must be complete and aligned.
    -- → the rows
    local function check_rows(columns, least)
      local head, rows
      sees(function(text)
        head, rows = text:match("\n(KEY [^\n]*)\n(.-)\n\n"), {}
        head = head or text:match("\n(KEY [^\n]*)")
        for line in text:gmatch("[^\n]+") do
          local is_row = line:find(" pid ", 1, true) or line:find(UUID:sub(1, 4), 1, true)
          if is_row then rows[#rows + 1] = line end
        end
        return head and #rows > 0 and width.of(head) <= columns and width.of(head) > (least or 0)
      end)
      assert.matches("^KEY +HOLDER +HELD +WAITERS +WAIT +TTL$", head)
      for _, line in ipairs(rows) do
        assert.matches("%S +%S.* +%S+ +[01] +%S+ +%S+$", line)
        assert.equal(width.of(head), width.of(line), line)
      end
      return rows
    end

    local LONG = "acme:" .. ("x"):rep(290) .. ":tail"
    local STRANGE = "caf\195\169 \233\148\129\240\159\148\146\27[31m\n\t\255"
    local STRANGE_SHOWN = "café 锁🔒\\x1b[31m\\x0a\\x09\\xff"

    local function forge_three()
      name_holders()
      forge("order:0042", 1, 4000)
      forge(LONG, 2, 400, 290)
      forge(STRANGE, 3, 40, 20)
    end

    it("fits long and unusual keys into 80, 100 and 200 columns", function()
      forge_three()
      start()
      local before = 0
      for _, columns in ipairs { 80, 100, 200 } do
        shell:resize(columns, 24)
        sees("3 locks, 2 waiters\n.*\nacme:x+…x+:tail  +[^\n]*s\n.*\norder:0042 ")
        local rows = check_rows(columns, before)
        before = columns
        assert.equal(3, #rows)
        assert.matches("^acme:xx+…x+x:tail  +web%-3 .*y +[67]m%d*s? +1 +[45]m%d*s? +9m%d*s?$", rows[1])
        local shown = columns == 80 and "café 锁🔒\\x1b…" or STRANGE_SHOWN .. "  "
        assert.equal(shown, rows[2]:sub(1, #shown))
        assert.matches("^order:0042 ", rows[3])
      end
      quit()
    end)

    it("keeps 5,000 locks on the screen at 80, 100 and 200 columns #check", function()
      forge_three()
      server:cli("EVAL", [[
        for i = 1, 4997 do
          local key = ('order:%05d'):format(i)
          if i % 2 == 0 then key = key .. ('y'):rep(289) end
          redis.call('HSET', key, ARGV[1] .. i, 1)
          redis.call('PEXPIRE', key, 600000)
        end
      ]], 0, UUID .. ":")
      start()
      for _, columns in ipairs { 80, 100, 200 } do
        shell:resize(columns, 24)
        types("Home", "w")
        sees("5000 locks, 2 waiters[^\n]*\n\nKEY [^\n]*\nacme:x+…x+:tail  .*\n1%-19 of 5000\n")
        assert.equal(19, #check_rows(columns))
        types("k", "PageDown")
        sees("\norder:00018[^\n]*\n.*\n20%-38 of 5000\n")
        assert.equal(19, #check_rows(columns))
        types("End")
        sees("\norder:04997 [^\n]*\n4982%-5000 of 5000\n")
        types("/", "0499", "Enter")
        sees("\nfilter: 0499   9 of 5000 locks\n")
        assert.equal(9, #check_rows(columns))
        types("Escape")
      end
      types("w")
      forge("order:03333", 3333, 10, 1000) -- below the screen, a wait begins
      assert(process.wait_until(function()
        return shell:screen():find("5000 locks, 3 waiters[^\n]*\n\nKEY [^\n]*\norder:03333 ")
      end, 5 * PATIENCE), shell:screen())
      quit()
    end)
  end)
end)
