local command = require "spec.support.command"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local sys = require "spec.support.sys"

local PATIENCE = 20

local function answers(path)
  local fd = sys.connect_unix(path)
  return fd and sys.close(fd)
end

local function has(program)
  local result = os.execute("command -v " .. program .. " >/dev/null 2>&1")
  return result == true or result == 0
end

describe("holdfast", function()
  local server, client, held -- what is not kept the collector releases

  setup(function() server = redis.start { tcp = true } end)
  teardown(function() server:stop() end)
  before_each(function()
    server:cli("FLUSHALL")
    client, held = holdfast.new(server:url()), {}
  end)
  after_each(function() client:close() end)

  local function run(...) return command.run(server, { ... }) end

  local function keep(lock)
    held[#held + 1] = assert(lock:acquire())
  end

  local function acquire(key, opts) keep(client:lock(key, opts)) end

  local function hold_by_command(...)
    local child = command.start(server, { "run", "--name", "nightly job", ... })
    assert(child:wait_output("ready", PATIENCE), child:output())
    return child
  end

  local function hold(key) return hold_by_command(key, "--", "sh", "-c", "echo ready; exec sleep 60") end

  describe("ls", function()
    it("lists what is held, and nothing else", function()
      acquire("one")
      acquire("named", { owner = "somebody" })
      server:cli("HSET", "counter", "visits", 7)
      server:cli("EXPIRE", "counter", 60)
      server:cli("HSET", "big", "a", 1, "b", 2)
      server:cli("SET", "text", "x")
      local code, output = run("ls")
      assert.equal(0, code)
      assert.matches("^KEY +OWNER +HOLDS +TTL +TOKEN +WAITERS\n", output)
      assert.matches("\nnamed  somebody +1 +[%d.]+ s +%d+ +0\none +[^\n]+\n$", output)
    end)

    it("prints nothing when there is nothing", function()
      assert.same({ 0, "" }, { run("ls") })
    end)

    it("takes a pattern and writes JSON", function()
      acquire("jobs:a\n\255")
      acquire("other")
      local code, output = run("ls", "--json", "jobs:*")
      assert.equal(0, code)
      assert.matches('^{"key":"jobs:a\\u000a?\\?n?\\u00ff","held":true,"mutex":false,"owner":"[%x:-]+","holds":1,' ..
        '"ttl":[%d.]+,"token":%d+,"waiters":0}\n$', (output:gsub("\\n", "\\u000a")))
    end)

    it("finds all among many keys, without KEYS", function()
      for i = 1, 3000 do server:cli("SET", "filler:" .. i, i) end
      for i = 1, 40 do acquire("many:" .. i) end
      local monitor = server:monitor()
      local _, output = run("ls", "many:*")
      assert.equal(41, select(2, output:gsub("\n", "")))
      assert.equal(0, monitor:count("KEYS"))
      assert.is_true(monitor:count("SCAN") > 1)
      monitor:close()
    end)

    it("works where SCAN does not know TYPE", function()
      acquire("one")
      local core, locks = require "holdfast.core", require "holdfast.command.locks"
      local real = core.client.command
      finally(function() core.client.command = real end)
      core.client.command = function(c, words)
        if words[7] == "TYPE" then return nil, "ERR syntax error", "server" end
        return real(c, words)
      end
      local list = assert(locks.scan(client):all())
      assert.equal(1, #list)
    end)

    it("lists mutexes on request", function()
      keep(client:mutex("m"))
      server:cli("SET", "text", ("x"):rep(40))
      assert.same({ 0, "" }, { run("ls") })
      local _, output = run("ls", "--mutex")
      assert.matches("\nm +[%x:-]+ +1 [^\n]+\n$", output)
    end)

    it("gives 69 for a server that is not there", function()
      assert.equal(69, (run("ls", "--url", "unix:///no/such.sock")))
    end)
  end)

  describe("show", function()
    it("tells who holds and who waits", function()
      local holder = hold("k")
      local waiter = command.start(server, { "run", "--name", "second", "k", "--", "true" })
      assert(process.wait_until(function() return client:lock("k"):info().waiters == 1 end, PATIENCE))
      local code, output = run("show", "k")
      assert.equal(0, code)
      assert.matches("key +k\nstate +held\nowner +[%x:-]+\nwho +%S+ pid " .. holder.pid .. " nightly job\n", output)
      assert.matches("\nholds +1\nttl +[%d.]+ s\ntoken +%d+\nwaiters +1\n", output)
      assert.matches("\n +1 +%S+ pid " .. waiter.pid .. " second\n$", output)
      code, output = run("show", "--json", "k")
      assert.equal(0, code)
      assert.matches('"host":"[^"]+","pid":' .. holder.pid .. ',"name":"nightly job"', output, 1)
      assert.matches('"queue":%[{"owner":"[%x:-]+","host":"[^"]+","pid":' .. waiter.pid .. ',"name":"second"}%]', output)
      waiter:kill("TERM")
      holder:kill("TERM")
      assert.same({ "exit", 143 }, { waiter:wait(PATIENCE) })
      assert.same({ "exit", 143 }, { holder:wait(PATIENCE) })
    end)

    it("gives 1 for a free lock", function()
      local code, output = run("show", "k")
      assert.equal(1, code)
      assert.matches("state +free\n", output)
    end)

    it("gives 73 for what is no lock", function()
      server:cli("RPUSH", "list", 1)
      assert.equal(73, (run("show", "list")))
    end)

    it("shows a mutex", function()
      keep(client:mutex("m"))
      assert.matches("state +held, a mutex\n", select(2, run("show", "m")))
    end)
  end)

  describe("break", function()
    it("does nothing when there is nobody to ask", function()
      acquire("k")
      local code, output = run("break", "k")
      assert.equal(64, code)
      assert.matches("^holdfast break: nobody to ask[^\n]+\n$", output)
      assert.equal(1, server:cli("EXISTS", "k"))
    end)

    it("takes the lock away and passes it on with --yes", function()
      acquire("k")
      local waiter = command.start(server, { "run", "k", "--", "echo", "ran" })
      assert(process.wait_until(function() return client:lock("k"):info().waiters == 1 end, PATIENCE))
      assert.same({ 0, "k: broken\n" }, { run("break", "--yes", "k") })
      assert.same({ "exit", 0 }, { waiter:wait(PATIENCE) })
      assert.same({ 1, "k: was free\n" }, { run("break", "-y", "k") })
    end)
  end)

  describe("top", function()
    it("prints a plain table once when it is not on a terminal", function()
      acquire("k")
      local code, output = run("top", "--interval", "0.1")
      assert.equal(0, code)
      assert.matches("^1 locks, 0 waiters, 0.0 hand%-offs/s\nKEY +HOLDER +HELD +TTL +WAITERS +HAND%-OFFS/S\n", output)
      assert.matches("\nk +%S", output)
    end)
  end)

  describe("ping", function()
    it("tells how long it took", function()
      local code, output = run("ping")
      assert.equal(0, code)
      assert.matches("^answers in [%d.]+ ms, the first time in [%d.]+ ms\n$", output)
      code, output = run("ping", "--url", "unix:///no/such.sock")
      assert.equal(69, code)
      assert.equal(1, select(2, output:gsub("\n", "")))
    end)
  end)

  describe("bench", function()
    it("prints a table and leaves nothing for long", function()
      local code, output = run("bench", "--cycles", "20", "--workers", "2")
      assert.equal(0, code, output)
      assert.matches("uncontended +[%d.]+ +%d+\nhand%-off, 2 processes +[%d.]+ +%d+\n$", output)
      for _, key in ipairs(server:cli("KEYS", "*")) do assert.is_true(server:cli("TTL", key) <= 60) end
    end)
  end)

  describe("help", function()
    it("is there for every verb", function()
      local code, output = run("--help")
      assert.equal(0, code)
      for verb in output:gmatch("\n  (%l+) ") do
        local verb_code, text = run(verb, "--help")
        assert.equal(0, verb_code)
        assert.matches("^Usage: holdfast " .. verb, text)
      end
    end)

    it("leaves --help behind -- to the job", function()
      assert.same({ 0, "--help\n" }, { run("run", "k", "--", "printf", "%s\\n", "--help") })
    end)

    it("gives the version", function()
      assert.same({ 0, "holdfast scm\n" }, { run("--version") })
    end)
  end)

  describe("identity", function()
    it("is refreshed while the job runs, and outlives a wait", function()
      local identity = require "holdfast.command.identity"
      local who = identity.new(client, "host", 7, "a name")
      who:tell_for_wait(100)
      assert.is_true(server:cli("TTL", who.key) > 3600)
      who:keep(10)
      assert.is_true(server:cli("TTL", who.key) <= 3600)
      server:cli("DEL", who.key)
      who:keep(11)
      assert.equal(0, server:cli("EXISTS", who.key))
      who:keep(10 + 1200)
      assert.equal("host 7 a name", server:cli("GET", who.key))
      assert.same({ host = "host", pid = 7, name = "a name" }, identity.of(client, client:lock("k"):owner()))
      who:forget()
      assert.equal(0, server:cli("EXISTS", who.key))
    end)
  end)
end)

-- ---- documents ----

describe("the documents of the command", function()
  local function read(path)
    local file = assert(io.open(path))
    local text = file:read("*a")
    file:close()
    return text
  end

  local VERBS = { "run", "ls", "show", "top", "break", "ping", "bench" }
  local INTERNAL = { worker = true }

  it("name every exit code", function()
    local man, page = read("docs/holdfast.1"), read("docs/command.md")
    for name, code in pairs(require "holdfast.command.exits") do
      if type(code) == "number" and code > 0 then
        assert.matches("\n%.It [%d ,]*" .. code .. "[ ,\n]", man, 1, name)
        assert.matches("\n| [%d, ]*" .. code .. "[ ,]", page, 1, name)
      end
    end
  end)

  it("name every option, as the completions do", function()
    local man, zsh = read("docs/holdfast.1"), read("completions/_holdfast")
    for _, verb in ipairs(VERBS) do
      for _, option in ipairs(require("holdfast.command." .. verb).options) do
        local name = option[1]:gsub("%-", "%%-")
        if not INTERNAL[option[1]] then
          assert.matches("%-" .. name .. "[ \n]", man)
          assert.matches("%-%-" .. name .. "[=%[}]", zsh)
        end
      end
    end
  end)

  it("pass mandoc", function()
    if not has("mandoc") then return pending("there is no mandoc") end
    local lint = command.other { "mandoc", "-Tlint", "-Wwarning", "docs/holdfast.1" }
    assert.same({ "exit", 0 }, { lint:wait(PATIENCE) })
  end)

  it("complete verbs, options and keys in bash", function()
    local server = redis.start()
    finally(function() server:stop() end)
    local client = holdfast.new(server:url())
    local lock = assert(client:lock("jobs:backup"):acquire())
    local script = command.shell_prelude(server) .. [[

      . completions/holdfast.bash
      try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _holdfast; echo "<${COMPREPLY[*]}>"; }
      try holdfast b
      try holdfast run --min
      try holdfast show jo
      try holdfast run -w ""
    ]]
    local child = command.other { "bash", "-c", script }
    assert.same({ "exit", 0 }, { child:wait(PATIENCE) })
    assert.equal("<break bench>\n<--min-hold>\n<jobs:backup>\n<>\n", child:output())
    assert(lock:release())
    client:close()
  end)
end)

-- ---- on a terminal ----

describe("on a terminal", function()
  if not has("tmux") then return pending("there is no tmux") end

  local server, directory, client

  local function tmux(...)
    local child = command.other { "tmux", "-S", directory .. "/tmux", "-f", "/dev/null", ... }
    assert.same({ "exit", 0 }, { child:wait(PATIENCE) })
    return child:output()
  end

  local function screen() return tmux("capture-pane", "-p", "-t", "spec") end

  local function sees(pattern)
    local seen
    local found = process.wait_until(function()
      seen = screen()
      return seen:find(pattern)
    end, PATIENCE)
    assert(found, ("no %q in:\n%s"):format(pattern, tostring(seen)))
  end

  local function types(...) tmux("send-keys", "-t", "spec", ...) end

  -- The job reads the line that is typed. One that comes while the shell still changes the terminal's mode is delivered
  -- with the next Enter.
  local function gets_words()
    local typed = 0
    types("words", "Enter")
    local got = process.wait_until(function()
      local seen = screen()
      if seen:find("\nwords\n+words\nwent on\ncode 0") then return true end
      typed = typed + 1
      if typed % 100 == 0 then types("Enter") end
    end, PATIENCE)
    assert(got, "the job does not get the line:\n" .. screen())
  end

  -- The job's own child sleeps: a shell between its fork and its exec may miss a key that is typed then.
  local function sleeps(name)
    local tty = tmux("display", "-p", "-t", "spec", "#{pane_tty}"):match("pts/%d+")
    assert(process.wait_until(function()
      local list = command.other { "pgrep", "-x", "-r", "S", "-t", tty, name }
      return select(2, list:wait(PATIENCE)) == 0
    end, PATIENCE), screen())
  end

  setup(function() server = redis.start() end)
  teardown(function() server:stop() end)

  before_each(function()
    server:cli("FLUSHALL")
    client = holdfast.new(server:url())
    directory = process.directory()
    local file = assert(io.open(directory .. "/rc", "w"))
    file:write(command.shell_prelude(server), "\nPS1='$ '\n")
    file:close()
    command.other { "tmux", "-D", "-S", directory .. "/tmux", "-f", "/dev/null" } -- ends with this program
    assert(process.wait_until(function() return answers(directory .. "/tmux") end, PATIENCE))
    tmux("new-session", "-d", "-s", "spec", "-x", "100", "-y", "20", "bash --rcfile " .. directory .. "/rc -i")
    sees("^%$")
  end)

  after_each(function()
    tmux("kill-server")
    client:close()
    process.remove(directory)
  end)

  it("top shows the locks live, sorts them and quits by a key", function()
    local a, b = client:lock("aaa"), client:lock("bbb")
    assert(a:acquire())
    types("holdfast top --interval 0.1", "Enter")
    sees("1 locks, 0 waiters.*KEY.*\naaa .*sort by")
    assert(b:acquire())
    sees("2 locks.*\naaa .*\nbbb ")
    local waiter = command.start(server, { "run", "bbb", "--", "true" })
    sees("2 locks, 1 waiters")
    types("w")
    sees("\nbbb .*\naaa ")
    types("k")
    sees("\naaa .*\nbbb ")
    tmux("resize-window", "-t", "spec", "-x", "60", "-y", "10")
    sees("\naaa [^\n]*\n[^\n]*\n?.*sort by: k key")
    waiter:kill("TERM")
    types("C-z")
    sees("Stopped")
    types("fg", "Enter")
    sees("2 locks, 0 waiters")
    types("q")
    sees("%$ *\n*$")
    types("stty -a | grep -o ' icanon'; echo done", "Enter")
    sees("icanon\ndone")
  end)

  -- The shell would keep for itself what is typed before the job runs.
  local READS = "sh -c 'echo rea''dy; head -n 1; echo went on'"

  it("the job reads from the terminal", function()
    types("holdfast run k -- " .. READS .. "; echo code $?", "Enter")
    sleeps("head")
    gets_words()
  end)

  it("Ctrl-C ends the job", function()
    types("holdfast run k -- sh -c 'echo rea''dy; sleep 60'; echo code $?", "Enter")
    sleeps("sleep")
    types("C-c")
    sees("code 130")
    assert.equal(0, server:cli("EXISTS", "k"))
  end)

  it("Ctrl-Z stops it, fg continues it, still with its lock", function()
    types("holdfast run k -- " .. READS .. "; echo code $?", "Enter")
    sleeps("head")
    types("C-z")
    sees("Stopped")
    assert.equal(1, server:cli("EXISTS", "k"))
    types("fg >/dev/null; echo code $?", "Enter")
    sleeps("head")
    gets_words()
    assert.equal(0, server:cli("EXISTS", "k"))
  end)

  it("a job that was stopped for too long is ended when it comes back without its lock", function()
    types("holdfast run --lease 0.5 k -- sh -c 'echo rea''dy; head -n 1; echo went on'; echo code $?", "Enter")
    sleeps("head")
    types("C-z")
    sees("Stopped")
    assert(process.wait_until(function() return server:cli("EXISTS", "k") == 0 end, PATIENCE))
    types("fg >/dev/null; echo code $?", "Enter")
    sees("lost the lock.*code 75")
  end)

  it("a job in the background stops when it reads, and fg gives it the terminal", function()
    types("set -b; holdfast run k -- " .. READS .. " &", "Enter")
    sees("Stopped")
    types("fg >/dev/null; echo code $?", "Enter")
    sleeps("head")
    gets_words()
  end)

  it("a job in a script and in a pipe gets the terminal when it reads", function()
    types("(holdfast run k -- " .. READS .. "; echo code $?) | cat", "Enter")
    sleeps("head")
    gets_words()
  end)

  it("break asks", function()
    local lock = assert(client:lock("k"):acquire())
    types("holdfast break k; echo code $?", "Enter")
    sees("Break it%? %[y/N%]")
    types("n", "Enter")
    sees("code 1")
    assert.equal(1, server:cli("EXISTS", "k"))
    types("clear; holdfast break k; echo code $?", "Enter")
    sees("^The lock.*Break it%? %[y/N%]")
    types("y", "Enter")
    sees("k: broken\ncode 0")
    assert.is_false(lock:is_locked())
  end)
end)
