-- The subcommands that read a server whose contents were written to do harm, or that is not Redis,
-- and where the command finds its settings and modules.

local core = require "holdfast.core"
local command = require "spec.support.command"
local files = require "spec.support.files"
local holdfast = require "holdfast"
local hostile = require "spec.support.hostile"
local json = require "holdfast.command.json"
local output = require "holdfast.command.output"
local own_process = require "holdfast.process"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local resp = require "spec.support.resp"

local SEED = tonumber(os.getenv("HOLDFAST_HOSTILE_SEED")) or 1
local COUNT = tonumber(os.getenv("HOLDFAST_HOSTILE_KEYS")) or 500
local IN_SHORT = COUNT <= 500

-- Runs a subcommand in this process. → its exit code, its lines, those on standard error
local function run(url, name, ...)
  local out, err = {}, {}
  local print_line, say = output.print, own_process.say
  output.print = function(text) out[#out + 1] = text end
  own_process.say = function(text) err[#err + 1] = text end
  local done, exit = pcall(require("holdfast.command." .. name).main, { name, "--url", url, ... })
  output.print, own_process.say = print_line, say
  assert(done, ("%s: %s"):format(name, tostring(exit)))
  return exit, table.concat(out, "\n"), table.concat(err)
end

-- ---- what may be shown ----

local SEQUENCES = {
  "[\194-\223][\128-\191]", "\224[\160-\191][\128-\191]", "[\225-\236\238\239][\128-\191][\128-\191]",
  "\237[\128-\159][\128-\191]", "\240[\144-\191][\128-\191][\128-\191]",
  "[\241-\243][\128-\191][\128-\191][\128-\191]", "\244[\128-\143][\128-\191][\128-\191]",
}
local FORBIDDEN = {
  "%c", "\127", "\194[\128-\160\173]", "\216\156", "\226\128[\128-\143\168-\175]", "\226\129[\159-\175]",
  "\239\187\191", "\243\160[\128-\191]",
}

local function is_utf8(text)
  for _, sequence in ipairs(SEQUENCES) do text = text:gsub(sequence, " ") end
  return not text:find("[\128-\255]")
end

local function assert_fit_for_a_terminal(text)
  assert.is_true(is_utf8(text), ("%q"):format(text))
  for _, pattern in ipairs(FORBIDDEN) do
    assert.is_nil(text:find(pattern), ("%s in %q"):format(pattern, text))
  end
end

local function utf8_of(code)
  if code < 0x80 then return string.char(code) end
  if code < 0x800 then return string.char(0xc0 + math.floor(code / 64), 0x80 + code % 64) end
  local high, low = math.floor(code / 64) % 64, code % 64
  return string.char(0xe0 + math.floor(code / 4096), 0x80 + high, 0x80 + low)
end

local SHORT = { n = "\n", r = "\r", t = "\t", ['"'] = '"', ["\\"] = "\\" }

local function decode(text)
  local body = assert(text:match('^"(.*)"$'))
  body = body:gsub("\\u(d[89ab]%x%x)\\u(d[c-f]%x%x)", function(high, low)
    local code = 0x10000 + (tonumber(high, 16) - 0xd800) * 1024 + tonumber(low, 16) - 0xdc00
    return string.char(0xf0 + math.floor(code / 262144), 0x80 + math.floor(code / 4096) % 64,
      0x80 + math.floor(code / 64) % 64, 0x80 + code % 64)
  end)
  return (body:gsub("\\(.)(%x?%x?%x?%x?)", function(kind, digits)
    if kind == "u" then return utf8_of(tonumber(digits, 16)) end
    return assert(SHORT[kind]) .. digits
  end))
end

local function from_latin_1(text)
  return (text:gsub("[\128-\255]", function(char) return utf8_of(char:byte()) end))
end

describe("a string from another client", function()
  it("is printed without terminal control characters, and JSON decodes to the original", function()
    local random = hostile.random(SEED)
    for _ = 1, COUNT do
      local text = random:text(12)
      assert_fit_for_a_terminal(output.printable(text))
      local encoded = json.value(text)
      assert_fit_for_a_terminal(encoded)
      assert.equal(is_utf8(text) and text or from_latin_1(text), decode(encoded))
    end
  end)

  it("is printed byte by byte in escapes if it is not valid UTF-8", function()
    for _, text in ipairs {
      "\192\155", "\193\191", "\224\128\155", "\224\159\191", "\237\160\128", "\237\191\191",
      "\240\128\128\155", "\240\143\191\191", "\244\144\128\128", "\245\128\128\128",
      "\128", "\226\130", "\240\159\152", "\255",
    } do
      local wanted = text:gsub(".", function(char) return ("\\x%02x"):format(char:byte()) end)
      assert.equal(wanted, output.printable(text))
      assert.equal("a" .. wanted .. "ä", output.printable("a" .. text .. "ä"))
    end
    for _, text in ipairs {
      "\194\161", "\223\191", "\224\160\128", "\237\159\191", "\238\128\128", "\239\191\191",
      "\240\144\128\128", "\241\128\128\128", "\243\176\128\128", "\243\191\191\191",
      "\244\143\191\191",
    } do
      assert.equal(text, output.printable(text))
    end
  end)

  it("is printed with bidirectional, line-breaking and invisible characters escaped, others unchanged", function()
    local ranges, hidden = {}, core.wire.hidden
    for i = 1, #hidden, 2 do ranges[#ranges + 1] = { hidden[i], hidden[i + 1] } end
    assert.is_true(#ranges > 20)
    for _, wanted in ipairs {
      0xad, 0x61c, 0x200b, 0x200e, 0x2028, 0x202e, 0x2060, 0x2066, 0x3000, 0xfeff,
    } do
      assert.matches("^[\\%w]+$", output.printable(utf8_of(wanted)))
    end
    for _, range in ipairs(ranges) do
      for code = range[1], math.min(range[2], 0xffff) do
        assert.matches("^[\\%w]+$", output.printable(utf8_of(code)))
      end
      for _, code in ipairs { range[1] - 1, range[2] + 1 } do
        local is_short = code >= 0x20 and code < 0xffff
        if is_short then assert.equal(utf8_of(code), output.printable(utf8_of(code))) end
      end
    end
    assert.equal("a\\xf3\\xa0\\x80\\x81b", output.printable("a\243\160\128\129b"))
    assert.equal('"\\udb40\\udc01"', json.value "\243\160\128\129")
  end)

  it("is printed differently from every other string, and is not escaped twice in a message", function()
    local seen, random = {}, hostile.random(SEED)
    local names = { "backup", "back\226\128\139up", "ba\194\173ckup", "\239\187\191backup", "a b", "a\194\160b",
      "a\nb", "a\\x0ab", "a\\x5cx0ab", "a\\\nb", "\\", "\\x", "\\x0", "\\\\x0a" }
    for i = 1, COUNT do
      names[#names + 1] = i % 2 == 0 and random:text(3) or "\\x0" .. random:text(2)
    end
    for _, name in ipairs(names) do
      local shown = output.name(name)
      assert.is_true(seen[shown] == nil or seen[shown] == name, shown)
      seen[shown] = name
      assert.equal(shown, output.printable(shown))
      local back = shown:gsub("\\x(%x%x)", function(digits)
        return string.char(tonumber(digits, 16))
      end)
      assert.equal(name, back)
    end
    assert.equal("a\\x5cx0ab", output.name "a\\x0ab")
    assert.equal("C:\\xyz\\dir", output.name "C:\\xyz\\dir")
  end)
end)

describe("the commands that only read locks", function()
  local server, url

  setup(function()
    server = redis.start()
    url = server:url()
  end)
  teardown(function() server:stop() end)
  after_each(function() server:cli("FLUSHALL") end)

  local OWNER = "0b0e5a3c-3b2e-4b1e-9d53-0123456789ab:1"

  local function put(key)
    server:cli("HSET", key, OWNER, 1)
    server:cli("PEXPIRE", key, 600000)
  end

  it("send no terminal control characters whatever the keys and names contain", function()
    for _, key in ipairs(hostile.keys("/nowhere")) do put(key) end
    server:cli("SET", "holdfast_client:" .. OWNER:sub(1, 36), "host\27[2J 42 name\226\128\174\194\155")
    server:cli("ZADD", "holdfast_queue:{kg\n}", 5, "1l\27[2J\226\128\174:7:1")
    server:cli("SET", "holdfast_wait:" .. OWNER, "1 " .. OWNER:sub(1, 37) .. "9 l k4\nnew\27[2J\tline")
    for _, words in ipairs {
      { "ls" }, { "ls", "--json" }, { "top", "--interval", "0.1" }, { "deadlocks", "-a" }, { "deadlocks", "-a", "--json" },
      { "show", "kg\n" }, { "show", "--json", "kg\n" }, { "wait", "-n", "k4\nnew\27[2J\tline" }, { "complete", "bash", "holdfast show ", "" },
    } do
      local _, out, err = run(url, (table.unpack or unpack)(words))
      for line in (out .. err):gmatch("[^\n]+") do assert_fit_for_a_terminal(line) end
    end
  end)

  it("handle a key of 1 MiB within a bounded time", function()
    local size = 2 ^ 20
    for _, char in ipairs(IN_SHORT and { " " } or { " ", "\27", "{", "\226\128\174" }) do
      local key = char:rep(math.floor(size / #char))
      put(key)
      for _, words in ipairs {
        { "ls" }, { "ls", "--json" }, { "top", "--interval", "0.1" }, { "show", key }, { "show", "--json", key },
      } do
        local start = os.clock()
        local exit, out = run(url, (table.unpack or unpack)(words))
        assert.is_true(exit == 0 and #out >= #key, words[1])
        assert.is_true(os.clock() - start < 10, words[1])
      end
      server:cli("FLUSHALL")
    end
    server:cli("ZADD", ("{"):rep(size) .. ":timeout", 5, "x")
    server:cli("RPUSH", "redisson_lock_queue:" .. ("{"):rep(size), "x")
    local start = os.clock()
    assert.equal(0, (run(url, "ls")))
    assert.is_true(os.clock() - start < 10)
  end)

  local MIB = ("x"):rep(2 ^ 20)

  -- Calls run, again if the server did not answer in time: a busy machine delays some answers.
  local function run_again(...)
    for _ = 1, 4 do
      local exit, out, err = run(url, ...)
      if not err:find("no reply in time", 1, true) then return exit, out, err end
    end
    return run(url, ...)
  end

  -- Runs each subcommand that looks at all keys, in this process. → the exit codes
  local function look_around()
    local codes, shows = {}, false
    for _, words in ipairs {
      { "ls" }, { "ls", "--json" }, { "top", "--interval", "0.1" }, { "deadlocks", "-a" },
      { "complete", "bash", "holdfast show g", "g" },
    } do
      local exit, out, err = run_again((table.unpack or unpack)(words))
      codes[#codes + 1] = ("%s %d%s"):format(words[1], exit, err)
      if words[1] ~= "deadlocks" then shows = out:find("good", 1, true) ~= nil end
      assert.is_true(shows, ("%s does not show it: %d, %s"):format(words[1], exit, err))
    end
    return table.concat(codes, ", ")
  end

  local FINE = "ls 0, ls 0, top 0, deadlocks 0, complete 0"

  -- On a busy machine, a reply of megabytes takes longer than the command's usual timeout.
  local function with_patience(fn)
    local new = holdfast.new
    holdfast.new = function(options)
      options.command_timeout = 60
      return new(options)
    end
    local done, message = pcall(fn)
    holdfast.new = new
    assert(done, message)
  end

  local function look_patiently_around()
    with_patience(function() assert.equal(FINE, look_around()) end)
  end

  it("skip keys, queues and waiters that are too large for one reply, and show the rest", function()
    put "good"
    for i = 1, 5 do put(i .. MIB:sub(2)) end
    look_patiently_around()
    server:cli("FLUSHALL")
    put "good"
    for i = 1, 5 do server:cli("ZADD", ("holdfast_queue:{%d%s}"):format(i, MIB:sub(2)), 1, "1l" .. OWNER .. ":1000") end
    for i = 1, 20 do
      server:cli("ZADD", "holdfast_queue:{good}", i, "1l" .. i .. MIB)
      server:cli("RPUSH", "redisson_lock_queue:{good}", i .. MIB)
    end
    look_patiently_around()
    with_patience(function() assert.equal(0, (run(url, "show", "good"))) end)
    server:cli("FLUSHALL")
    put "good"
    server:cli("SET", "holdfast_wait:" .. OWNER, MIB:rep(5))
    server:cli("HSET", "wide", MIB:rep(5), 1)
    server:cli("PEXPIRE", "wide", 600000)
    put(MIB:rep(5))
    look_patiently_around()
    with_patience(function() assert.equal(69, (run(url, "show", "wide"))) end)
  end)

  it("report names and channels that they left out because a reply was too large", function()
    put "good"
    local plain = core.client.command
    core.client.command = function(client, words, node)
      if words[1] == "SCAN" or words[3] == "CHANNELS" or words[2] == "CHANNELS" then
        return nil, "cannot run the command on x: " .. core.wire.too_large .. "4 MiB", "unreachable"
      end
      if words[1] == "EVAL" then return { "0", { "good" }, 2 } end
      return plain(client, words, node)
    end
    local results = {}
    local done, message = pcall(function()
      results.ls = { run(url, "ls") }
      results.top = { run(url, "top", "--json") }
    end)
    core.client.command = plain
    assert(done, message)
    for subcommand, result in pairs(results) do
      assert.equal(0, result[1])
      assert.matches(subcommand == "ls" and "\ngood " or '"key":"good"', result[2])
      assert.matches("left out: %d+ names, because the names together are larger than 4 MiB; "
        .. "latches, because the list of channels is larger than 4 MiB", result[3])
    end
  end)

  -- Runs ls and top while each of these reads fails. → their exit codes
  local function exits_without(reads)
    local reader = require "holdfast.driver".lock
    local plain, info = core.client.command, reader.info
    core.client.command = function(client, words, node)
      if reads[words[1] .. " " .. tostring(words[2])] then return nil, "no reply in time", "unreachable" end
      return plain(client, words, node)
    end
    reader.info = function(lock)
      if reads["info " .. lock:key()] then return nil, "no reply in time", "unreachable" end
      return info(lock)
    end
    local exits = {}
    local done, message = pcall(function()
      for i, subcommand in ipairs { "ls", "top" } do exits[i] = run(url, subcommand) end
    end)
    core.client.command, reader.info = plain, info
    assert(done, message)
    return exits
  end

  it("fail if the server stops responding partway, instead of showing an incomplete list", function()
    local client = holdfast.new(url)
    put "good"
    put "unread"
    put "fair"
    server:cli("RPUSH", "redisson_lock_queue:{fair}", OWNER)
    server:cli("ZADD", "redisson_lock_timeout:{fair}", ("%.0f"):format(os.time() * 1000 + 600000), OWNER)
    -- without the variable it would be released when it is collected
    local permit = assert(client:semaphore("pool", { permits = 2 }):acquire(1, 0))
    assert.same({ 0, 0 }, exits_without {})
    for _, read in ipairs { "HLEN unread", "GET pool", "info pool", "info fair" } do
      assert.same({ 69, 69 }, exits_without { [read] = true }, read)
    end
    assert(permit:release())
    client:close()
  end)

  it("continue after a SCAN reply that is too large, skipping only names that no lock can have", function()
    local pages, client = require "holdfast.pages", holdfast.new(url)
    local plain, asked = core.client.command, {}
    server:cli("SET", MIB:rep(2), 1)
    put "good"
    core.client.command = function(of, words, node)
      if words[1] ~= "SCAN" then return plain(of, words, node) end
      asked[#asked + 1] = words[6]
      return nil, core.wire.too_large, "unreachable"
    end
    local names, cursor, fits = {}, "0", 500
    local done, message = pcall(function()
      repeat
        local results = { pages.scan(client, nil, cursor, "*", "hash", fits) }
        local reply = assert(results[1], results[2])
        cursor, fits = reply[1], results[4]
        for _, name in ipairs(reply[2]) do names[#names + 1] = name end
      until cursor == "0"
    end)
    core.client.command = plain
    assert(done, message)
    assert.same({ { "good" }, { 500, 62, 7, 1 }, 1 },
      { names, { asked[1], asked[2], asked[3], asked[4] }, fits })
    client:close()
  end)

  it("skip empty keys, wherever they occur", function()
    put "good"
    server:cli("HSET", "", "f", 1)
    server:cli("PEXPIRE", "", 600000)
    server:cli("ZADD", "{}:timeout", 5, "x")
    server:cli("ZADD", ":timeout", 5, "x")
    server:cli("ZADD", "holdfast_queue:{}", 5, "1l" .. OWNER .. ":7")
    server:cli("RPUSH", "redisson_lock_queue:{}", OWNER)
    server:cli("RPUSH", "redisson_lock_queue:", OWNER)
    server:cli("SET", "holdfast_wait:" .. OWNER, "1 " .. OWNER:sub(1, 37) .. "9 l ")
    local listener = assert(resp.connect { path = server.path })
    listener:call("SUBSCRIBE", "redisson_countdownlatch__channel__{}", "redisson_sc:")
    assert.equal(FINE, look_around())
    listener:close()
    for _, name in ipairs { "show", "break" } do
      local exit, _, err = run(url, name, "", name == "break" and "-y" or nil)
      assert.same({ 64, ("holdfast %s: KEY is empty\n"):format(name) }, { exit, err })
    end
  end)

  -- ---- servers by chance ----

  -- Short in make test, long in make fuzz.
  it("show valid locks and exit with at most one message, whatever data is on the server", function()
    local random = hostile.random(SEED)
    local till = core.now() + (tonumber(os.getenv("HOLDFAST_HOSTILE_SECONDS")) or 2)
    repeat
      local names = hostile.fill(server, random, "good")
      assert.matches("^ls 0, ls 0, top 0, deadlocks [01], complete 0$", look_around())
      for _, subcommand in ipairs { "show", "wait" } do
        local key = names[random:number(#names)]
        if #key <= 131000 then
          local exit, out, err = run(url, subcommand, subcommand == "wait" and "-n" or "--json", "--", key)
          local is_event = err:find('^{"event":"error",[^\n]+}\n$') ~= nil
          assert.is_true(exit <= 1 or is_event or err:find("^holdfast %l+: [^\n]+\n$") ~= nil, err)
          for line in (out .. err):gmatch("[^\n]+") do assert_fit_for_a_terminal(line) end
        end
      end
    until core.now() > till
  end)

  -- ---- no Redis ----

  local NAMES = {
    "SCAN", "HSCAN", "HLEN", "HGET", "HEXISTS", "TYPE", "GET", "PTTL", "STRLEN", "EXISTS", "LRANGE", "ZRANGE",
    "ZRANGEBYSCORE", "PUBSUB", "TIME", "EVAL",
  }
  local WRONG = {
    { 1, { "a" }, "x" }, { "0", { 1, {} } }, { { "a" }, 5 }, 7, "text", false, {}, -1, { "0" },
    { { {} } }, "", { "0", "x" }, { 1e300, "" },
  }

  local function with_wrong_reply(name, wrong, body)
    local plain = core.client.command
    core.client.command = function(client, words, node)
      if words[1] ~= name then return plain(client, words, node) end
      return wrong or nil
    end
    local done, message = pcall(body)
    core.client.command = plain
    assert(done, ("%s: %s"):format(name, tostring(message)))
  end

  it("exit with an error message if a reply has the wrong type", function()
    local client = holdfast.new(url)
    local held = { client:lock("lock"):acquire(), client:semaphore("pool", { permits = 2 }):acquire() }
    put "plain"
    server:cli("ZADD", "holdfast_queue:{lock}", 5, "1lx:7:1")
    server:cli("RPUSH", "redisson_lock_queue:{plain}", OWNER)
    server:cli("SET", "holdfast_wait:" .. OWNER, "1 " .. OWNER:sub(1, 37) .. "9 l plain")
    for i, name in ipairs(NAMES) do
      for j = i, i + (IN_SHORT and 1 or #WRONG - 1) do
        with_wrong_reply(name, WRONG[j % #WRONG + 1], function()
          for _, words in ipairs {
            { "ls" }, { "show", "lock" }, { "show", "pool" }, { "show", "plain" }, { "deadlocks" }, { "wait", "-n", "lock" },
            { "complete", "bash", "holdfast show l", "l" },
          } do
            local exit, _, err = run(url, (table.unpack or unpack)(words))
            assert.is_number(exit)
            assert.is_true(exit <= 1 or err:match("^holdfast %l+: [^\n]+\n$") ~= nil, err)
          end
        end)
      end
    end
    assert.is_not_nil(held)
    client:close()
  end)
end)

-- ---- files of settings ----

it("a warning does not cause later events to be printed without -v", function()
  local out, say, said = output.new("holdfast run", {}), own_process.say, {}
  own_process.say = function(text) said[#said + 1] = text end
  out:event("started", {}, "started")
  out:problem("warning", {}, "a warning")
  out:event("ended", {}, "ended")
  own_process.say = say
  assert.same({ "holdfast run: a warning\n" }, said)
end)

it("job processes that cannot be signalled are named with -v, or once a signal fails", function()
  local work, said = require "holdfast.command.work", {}
  local out = { name = "holdfast run" }
  for _, how in ipairs { "advice", "problem" } do
    out[how] = function(_, event, fields, text)
      said = { how, event, text, fields[1][2], fields[2][2], fields[3][2] }
    end
  end
  local held = { locks = {}, client = {} }
  local plan = work.plan({ given = {}, config = {}, argv = {} }, held, out)
  plan.on_refused({ 7 })
  assert.same({ "advice", "refused", "the job's process 7 belongs to another user, so holdfast cannot stop it if the lock is "
    .. "lost; start holdfast as root (sudo holdfast run …)", 7, 1 }, said)
  plan.on_refused({ 7, 8 }, "TERM")
  assert.same({ "problem", "refused", "the job's processes 7, 8 belong to another user, so holdfast cannot send TERM to them; "
    .. "start holdfast as root (sudo holdfast run …)", 7, 2, "TERM" }, said)
  work.plan({ given = {}, config = {}, argv = {}, keeps = true }, held, out).on_refused({ 7 })
  assert.equal("problem", said[1])
end)

it("columns are as wide as their widest cell, and lines have no trailing spaces", function()
  assert.same({ "KEY    N  X", "ä€x    1", "abcd  22  y" }, output.columns(
    { { "KEY", "N", "X" }, { "ä€x", "1", "" }, { "abcd", "22", "y" } }, { false, true, false }))
  assert.same({ "中文  1", "a\204\129     2", "😀x   3", "abcd  4" },
    output.columns({ { "中文", "1" }, { "a\204\129", "2" }, { "😀x", "3" }, { "abcd", "4" } }, {}))
  local long = ("l"):rep(120)
  assert.same({ ("k"):rep(100) .. "  1", "k" .. (" "):rep(101) .. "2", long .. "  3" },
    output.columns({ { ("k"):rep(100), "1" }, { "k", "2" }, { long, "3" } }, {}))
end)

describe("the settings file", function()
  local directory, path

  before_each(function()
    directory = process.directory()
    path = directory .. "/holdfast.conf"
  end)
  after_each(function() process.remove(directory) end)

  local function shell(text)
    local child = command.other { "sh", "-ec", text }
    assert.same({ "exit", 0 }, { child:wait(20) }, child:output())
    return child:output()
  end

  local function write(text) files.write(path, text, "\n") end

  -- → the exit code and the output of a run whose settings file names an absent server
  local function try(config)
    return command.run(nil, { "run", "-n", "k", "--", "true", env = { HOLDFAST_CONFIG = config or path } })
  end

  local URL = "url = unix:///nowhere/redis.sock"

  it("is refused if it is not a regular file or larger than 64 KiB", function()
    shell("mkfifo " .. path)
    assert.same({ 64, ("holdfast run: cannot read %s: it is not a regular file\n"):format(path) }, { try() })
    assert.same({ 64, "holdfast run: cannot read /dev/zero: it is not a regular file\n" }, { try "/dev/zero" })
    os.remove(path)
    write(URL .. "\n#" .. ("x"):rep(65536))
    assert.same({ 64, ("holdfast run: cannot read %s: it is too large\n"):format(path) }, { try() })
  end)

  it("is refused if it is world-writable or belongs to another user", function()
    write(URL)
    shell("chmod 666 " .. path)
    local code, text = try()
    assert.equal(64, code)
    assert.matches("it is world-writable; run chmod o-w on it", text, 1, true)
    shell("chmod 664 " .. path)
    assert.equal(69, (try()))
    if shell("id -u") ~= "0\n" then return end
    shell("chown 12345 " .. path)
    code, text = try()
    assert.equal(64, code)
    assert.matches("it belongs to another user", text, 1, true)
  end)

  -- Returns what settings.load returns in this process, with `text` in the file and these
  -- variables.
  local function load(given, text, variables)
    local settings, getenv = require "holdfast.command.settings", os.getenv
    write(text)
    variables = variables or { HOLDFAST_CONFIG = path }
    os.getenv = function(name) return variables[name] end -- luacheck: ignore 122
    local done, result, message = pcall(settings.load, given)
    os.getenv = getenv -- luacheck: ignore 122
    assert(done, result)
    return result, message
  end

  it("has one setting per line, and may contain comments", function()
    local result = assert(load({}, "\n# all\n \t\nurl = redis://h/3#x \t# which\r\n  lease=1h30m\n"
      .. "grace\t=\t0\nname =  night  job \nrestart_guard = 5\nconnect_timeout = 1ms\n"
      .. "command_timeout = 1h\ntenant = t:#\nca = /a b/c=d.pem\ncert = c\nkey = k"))
    assert.same({
      url = "redis://h/3#x", source = "url in " .. path, of_file = true, lease = 5400, grace = 0,
      name = "night  job", restart_guard = 5, connect_timeout = 0.001, command_timeout = 3600,
      tenant = "t:#",
    }, result)
  end)

  it("is refused with the number of the invalid line", function()
    for text, message in pairs {
      ["url = redis://h\nlaese = 5"] = ':2: unknown setting "laese"',
      ["\n\nlease 5"] = ":3: expected `name = value`",
      ["# all\nlease: 5"] = ":2: expected `name = value`",
      ["no-wait = 1"] = ":1: expected `name = value`",
      ["url ="] = ":1: url must be non-empty",
      ["url =  # later"] = ":1: url must be non-empty",
      ["lease = 0.05"] = ":1: lease must be a duration from 0.1 s to 1e9 s, such as 90, 1.5, 5m or 1h30m",
      ["grace = soon"] = ":1: grace must be a duration from 0 s to 1e9 s, such as 90, 1.5, 5m or 1h30m",
      ["name = a\27b"] = ":1: name must be 1 to 127 printable characters",
      ["lease = 5\ngrace = 0\n\ngrace = 0"] = ":4: grace is set twice",
      ["url = redis://a\nservers = redis://b"] = ": url and servers cannot be combined",
      ["cert = c"] = false, ["key = k"] = false,
    } do
      local result, said = load({ url = "rediss://h" }, text)
      assert.is_nil(result, text)
      assert.equal(message and path .. message
        or "cert and key must be set together in the settings file", said)
    end
  end)

  it("is the first one found in $HOLDFAST_CONFIG, $XDG_CONFIG_HOME and the home directory", function()
    shell(("mkdir -p '%s'/own '%s'/home/.config; touch '%s'/file"):format(directory, directory, directory))
    for _, place in ipairs { "own", "home/.config" } do
      files.write(("%s/%s/holdfast.conf"):format(directory, place), "name = ", place, "\n")
    end
    local own, home = directory .. "/own", directory .. "/home"
    for _, case in ipairs {
      { { HOLDFAST_CONFIG = path, XDG_CONFIG_HOME = own, HOME = home }, "given" },
      { { HOLDFAST_CONFIG = "", XDG_CONFIG_HOME = own, HOME = home }, "own" },
      { { XDG_CONFIG_HOME = "", HOME = home }, "home/.config" },
      { { HOLDFAST_CONFIG = "/dev/null", XDG_CONFIG_HOME = own, HOME = home } },
    } do
      assert.equal(case[2], assert(load({}, "name = given", case[1])).name)
    end
    local _, message = load({}, "", { HOLDFAST_CONFIG = directory .. "/none" })
    assert.matches("^cannot read .*/none: ", message)
    if process.succeeds "test -e /etc/holdfast.conf" then return end
    for _, variables in ipairs { -- the directory is absent, is a file, or is not named
      { XDG_CONFIG_HOME = directory .. "/none" }, { XDG_CONFIG_HOME = directory .. "/file" }, {},
    } do
      assert.same({ url = "redis://127.0.0.1:6379", source = "url" }, load({}, "", variables))
    end
  end)

  it("is overridden by options; --cert and --key override its certificate together", function()
    local text = "url = redis://f\nname = f\nlease = 7\ngrace = 8\ntenant = f\n"
      .. "ca = fa\ncert = fc\nkey = fk\nrestart_guard = 9"
    for _, case in ipairs {
      { { url = "rediss://a" }, { ca_file = "fa", cert = "fc", key = "fk" } },
      { { url = "valkeys://a", ca = "a" }, { ca_file = "a", cert = "fc", key = "fk" } },
      { { url = "rediss://a", cert = "c", key = "k" }, { ca_file = "fa", cert = "c", key = "k" } },
      { { url = "rediss://a", cert = "c" }, "--cert and --key must be used together" },
      { { url = "rediss://a", key = "k" }, "--cert and --key must be used together" },
      { { url = "valkey://a" } }, { {} }, { { servers = "redis://a,redis://b" } },
      { { servers = "redis://a,rediss://b" }, { ca_file = "fa", cert = "fc", key = "fk" } },
      { { ca = "a" }, "--ca, --cert and --key need rediss://" },
      { { cert = "c", key = "k" }, "--ca, --cert and --key need rediss://" },
      { { cert = "c" }, "--ca, --cert and --key need rediss://" },
      { { key = "k" }, "--ca, --cert and --key need rediss://" },
      { { ["restart-guard"] = 0 }, "--restart-guard needs --servers" },
      { { url = "redis://a", servers = "redis://b" }, "--url and --servers cannot be combined" },
    } do
      local result, message = load(case[1], text)
      assert.same(case[2], result and result.tls or message)
    end
    local result = assert(load({ servers = "redis://a, redis://b", name = "n", lease = 1, grace = 0,
      tenant = "t", ["restart-guard"] = 0 }, text))
    assert.same({ "redis://a", "redis://b" }, result.servers)
    assert.same({ "n", 1, 0, "t", 0, "--servers" }, { result.name, result.lease, result.grace,
      result.tenant, result.restart_guard, result.source })
    assert.equal(9, load({ servers = "redis://a" }, text).restart_guard)
  end)

  it("supplies a nested command with the password that was removed from its environment", function()
    local secret, bare = "redis://u:p@a:1/2", "redis://a:1/2"
    for _, case in ipairs {
      { bare, "url = " .. secret, "o", "url in " .. path, secret },
      { bare, "url = " .. secret, nil, "url in $HOLDFAST_URL", bare },
      { bare, "url = " .. secret, "", "url in $HOLDFAST_URL", bare },
      { bare, "url = redis://u:p@a:1/3", "o", "url in $HOLDFAST_URL", bare },
      { "redis://v@a:1/2", "url = " .. secret, "o", "url in $HOLDFAST_URL", "redis://v@a:1/2" },
      { bare, "servers = " .. secret, "o", "url in $HOLDFAST_URL", bare },
      { bare, "servers = ,", "o", "url in $HOLDFAST_URL", bare },
      { bare, "lease = 5", "o", "url in $HOLDFAST_URL", bare },
    } do
      local result = assert(load({}, case[2],
        { HOLDFAST_CONFIG = path, HOLDFAST_URL = case[1], HOLDFAST_OWNER = case[3] }))
      assert.same({ case[4], case[5] }, { result.source, result.url })
    end
    local result = assert(load({}, "servers = redis://p@a, redis://q:r@b redis://c", { HOLDFAST_CONFIG = path,
      HOLDFAST_SERVERS = "redis://a,redis://b,redis://c", HOLDFAST_OWNER = "o" }))
    assert.same({ "redis://p@a", "redis://q:r@b", "redis://c" }, result.servers)
  end)

  it("names the server only if neither options nor the environment do", function()
    local text = "servers = redis://f,redis://g"
    local both = { HOLDFAST_CONFIG = path, HOLDFAST_URL = "redis://e" }
    local many = { HOLDFAST_CONFIG = path, HOLDFAST_SERVERS = "redis://e,redis://d" }
    local empty = { HOLDFAST_CONFIG = path, HOLDFAST_SERVERS = "", HOLDFAST_URL = "" }
    for _, case in ipairs {
      { { url = "redis://a" }, many, "--url", "redis://a" },
      { { servers = "redis://a" }, both, "--servers", nil, { "redis://a" } },
      { {}, both, "url in $HOLDFAST_URL", "redis://e" },
      { {}, many, "servers in $HOLDFAST_SERVERS", nil, { "redis://e", "redis://d" } },
      { {}, empty, "servers in " .. path, nil, { "redis://f", "redis://g" } },
    } do
      local result = assert(load(case[1], text, case[2]))
      assert.same({ source = case[3], url = case[4], servers = case[5] },
        { source = result.source, url = result.url, servers = result.servers })
    end
  end)

  it("sets timeouts that override those of the subcommand, and the client's tenant, servers and certificates", function()
    local settings, clients, seen = require "holdfast.command.settings", require "holdfast.client", nil
    local new = clients.new
    finally(function() clients.new = new end)
    clients.new = function(opts) seen = opts return {} end
    local more = { connect_timeout = 1, command_timeout = 2, lease = 5 }
    assert(settings.client({ url = "redis://a", command_timeout = 7, tenant = "t:", tls = { ca_file = "c" },
      restart_guard = 3, name = "n", grace = 4 }, more))
    assert.is_function(seen.on_event) -- a client with a tenant has it, to warn
    seen.on_event = nil
    assert.same({ url = "redis://a", tenant = "t:", tls = { ca_file = "c" }, connect_timeout = 1,
      command_timeout = 7, lease = 5 }, seen)
    assert(settings.client({ servers = { "redis://a" }, restart_guard = 3, connect_timeout = 9 }, more))
    assert.same({ servers = { "redis://a" }, mode = "quorum", restart_guard = 3, connect_timeout = 9,
      command_timeout = 2, lease = 5 }, seen)
  end)

  it("with a password that others can read causes a warning, but only on a terminal", function()
    write "url = redis://jobs:secret@localhost:1"
    local words = table.concat(command.words("ls"), "' '")
    local function on_terminal()
      return shell(("HOLDFAST_URL= HOLDFAST_SERVERS= HOLDFAST_CONFIG=%s script -qec \"'%s'\" /dev/null </dev/null || true"):format(
        path, words))
    end
    local warning = "holdfast: " .. path .. " contains a password and is world-readable; run chmod o-r on it\r\n"
    shell("chmod 644 " .. path)
    assert.equal(1, select(2, on_terminal():gsub(warning:gsub("%p", "%%%0"), "")))
    assert.is_nil(select(2, try()):find("password", 1, true))
    shell("chmod 640 " .. path)
    assert.is_nil(on_terminal():find("password", 1, true))
  end)
end)

-- ---- passwords ----

describe("a password in a URL", function()
  local URL = "redis://u:s3cretpw@h:x" -- its port is invalid, so no client can be made
  local SUBCOMMANDS = { "run", "lead", "hold", "wait", "latch", "ls", "show", "top", "deadlocks", "doctor", "break",
    "ping", "bench", "acl" }

  local function dispatch(words)
    local said, say, print_line = {}, own_process.say, output.print
    own_process.say = function(text) said[#said + 1] = text end
    output.print = function() end
    local done, exit = pcall(require("holdfast.command").main, words)
    own_process.say, output.print = say, print_line
    assert(done, exit)
    return exit, table.concat(said)
  end

  it("is never printed by any subcommand, whichever argument the URL is", function()
    local shown = 0
    local function hides(...)
      local exit, said = dispatch { ... }
      assert.is_nil(said:find("s3cretpw", 1, true), said)
      assert.is_true(exit == 64 or said == "", said)
      shown = shown + (said:find("redis://***@h:x", 1, true) and 1 or 0)
    end
    hides(URL)
    hides("--" .. URL)
    hides("help", URL)
    for _, name in ipairs(SUBCOMMANDS) do
      local subcommand = require("holdfast.command." .. name)
      for _, words in ipairs {
        {}, { URL, URL, URL, URL }, { "--" .. URL }, { "-" .. URL }, { "down", "k", URL },
      } do
        hides(name, "--url", URL, (table.unpack or unpack)(words))
        hides(name, "--json", "--url", URL, (table.unpack or unpack)(words))
      end
      for _, option in ipairs(subcommand.options) do
        hides(name, "--url", URL, "--" .. option[1] .. "=" .. URL, "k", "--", "true")
        hides(name, "--url", URL, "--" .. option[1], URL, "--", "k")
      end
    end
    assert.is_true(shown > 50, shown)
  end)

  it("is never printed in an error message about the environment or the settings file", function()
    local getenv, directory = os.getenv, process.directory()
    local path = directory .. "/holdfast.conf"
    for _, case in ipairs {
      { HOLDFAST_CONFIG = URL }, { HOLDFAST_URL = URL }, { HOLDFAST_SERVERS = URL },
      { HOLDFAST_SERVERS = URL .. ",," }, { text = "url = " .. URL },
      { text = "servers = " .. URL .. ",,b" }, { text = "lease = " .. URL },
      { text = "name = " .. URL .. "\27" }, { text = URL }, { text = URL .. " = 1" },
      { text = "tenant = " .. URL .. " x" },
      { text = "connect_timeout = " .. URL }, { text = "url = rediss://127.0.0.1:1\nca = " .. URL },
    } do
      files.write(path, case.text or "")
      case.HOLDFAST_CONFIG = case.HOLDFAST_CONFIG or path
      os.getenv = function(name) return case[name] end -- luacheck: ignore 122
      local done, exit, said = pcall(dispatch, { "ls" })
      os.getenv = getenv -- luacheck: ignore 122
      assert(done, exit)
      assert.is_nil(said:find("s3cretpw", 1, true), said)
      assert.is_true(exit == 64 or exit == 69, exit)
    end
    process.remove(directory)
  end)
end)

describe("the installed library", function()
  it("loads its C module from package.cpath, although the current directory has a Lua file of that name", function()
    local directory = process.directory()
    local script = ([[
      root=$PWD
      mkdir %s/holdfast && echo 'print "this was run"' >%s/holdfast/core.lua
      build=$(cd '%s/%s' && pwd) && cd %s
      LUA_PATH="$root/lua/?.lua;$root/lua/?/init.lua;./?.lua" LUA_CPATH="$build/?.so;./?.so" LUA_INIT= \
        '%s' -e 'print(require("holdfast")._VERSION)'
    ]]):format(directory, directory, process.build, process.flavour, directory, require("spec.support.sys").interpreter())
    local child = process.start { "sh", "-c", script }
    assert.same({ "exit", 0 }, { child:wait(20) }, child:output())
    assert.equal(holdfast._VERSION .. "\n", child:output())
    process.remove(directory)
  end)
end)
