-- A user needs exactly the rights that holdfast acl prints, and docs/how-to/redis.md shows these.

local acl = require "holdfast.command.acl"
local command = require "spec.support.command"
local holdfast = require "holdfast"
local pages = require "spec.support.pages"
local process = require "spec.support.process"
local resp = require "spec.support.resp"
local rights = require "spec.support.rights"

local world = require("spec.support.world").new()

before_each(world.open)
after_each(world.close)

local unpack = table.unpack or unpack
local JAVA = "5ee24fb5-3a2e-4c01-9a9f-1b2f3c4d5e6f:33"

-- For a client that lacks a right: a call that is denied may be repeated for this long.
local BRIEFLY = 2 -- seconds

-- A client of `user`, whose password is "secret".
local function connect(user, patience)
  return world.client {
    url = ("unix://%s:secret@%s?db=1"):format(user, world.server.path), prefix = "lock:",
    tenant = "lock:", command_timeout = patience or 10,
  }
end

local function client_of(words, patience)
  local rule = { "ACL", "SETUSER" }
  for _, word in ipairs(words) do rule[#rule + 1] = word end
  assert.equal("OK", world.server:cli(rule))
  return connect(words[1], patience)
end

local function copy(words, keep)
  local list = {}
  for _, word in ipairs(words) do
    if keep(word) then list[#list + 1] = word end
  end
  return list
end

-- The steps below succeed without these: what a release does for waiters, and what may be refused.
local NEEDS_A_COUNTERPART = {
  ["+publish"] = true, ["+pubsub|numsub"] = true, ["+zcard"] = true, ["+unsubscribe"] = true,
  ["&redisson_lock__channel:{lock:*"] = true, ["&redisson_lock__channel:lock:*"] = true,
  ["~holdfast_client:lock:*"] = true, ["~holdfast_wait:lock:*"] = true,
  ["+auth"] = true, ["+client|setname"] = true, ["+info"] = true,
}

local function of_locks() return rights.of { "lock", "mutex" } end

-- { name of a lock or "client", method, argument } or a function; these steps need no other client.
local STEPS = {
  { "client", "ping" },
  { "a", "acquire", 0 }, { "a", "acquire", 0 }, { "a", "check" }, { "a", "extend", 30 }, { "a", "info" },
  { "a", "ttl" }, { "a", "release" }, { "a", "release" }, { "a", "acquire", 0 }, { "a", "force_release" },
  { "c", "acquire", 0 }, { "c", "info" }, { "c", "release" },
  { "tagged", "acquire", 0 }, { "tagged", "release" }, { "both", "acquire", 0 }, { "both", "release" },
  function(client)
    return client:idempotent("f", { expire = 5 }, function() return "result" end)
  end,
  function(client) -- the key of a call that is done already
    local result, message, code = client:idempotent("f", { expire = 5 }, error)
    return result or code == "duplicate" or nil, message, code
  end,
  function(_, locks, wait) -- a lock of Java's that ends with its TTL, and a stranger's place
    world.cli("SELECT", 1)
    world.cli("ZADD", "holdfast_queue:{lock:g}", "inf", "nobody")
    world.cli("HSET", "lock:g", JAVA, 1)
    world.cli("PEXPIRE", "lock:g", 1000)
    world.cli("SELECT", 0)
    return locks.g:acquire(wait)
  end,
  { "g", "release" },
  function(client) -- two renewals
    return client:with_lock("b", { lease = 3, watchdog = true }, function()
      process.sleep(2.2) return true
    end)
  end,
}

-- → nothing, or the code and message of the first failure
local function everything(client, wait)
  -- kept here, because a collected lock is released
  local locks = { client = client, both = client:multi_lock { "d", "e" }, c = client:mutex "c" }
  for _, key in ipairs { "a", "g" } do locks[key] = client:lock(key) end
  locks.tagged = client:lock "{t}"
  for _, step in ipairs(STEPS) do
    local call = type(step) == "function" and step or function()
      local lock = locks[step[1]]
      return lock[step[2]](lock, step[3])
    end
    local result, message, code = call(client, locks, wait)
    if result == nil then return code, message end
  end
end

local function clean(client)
  client:close()
  world.cli("FLUSHALL")
end

describe("the ACL rights for locks", function()
  it("equal those that docs/how-to/redis.md shows", function()
    local shown = pages.read("docs/how-to/redis.md"):match("\n    ACL SETUSER locks (.-)\n\n")
    local words = rights.of { "lock" }
    table.remove(words, 1) -- the user's name
    table.remove(words) -- its password
    assert.equal(table.concat(words, " "), (shown:gsub("%s+", " ")))
  end)

  it("suffice for every call of a lock", function()
    local client = client_of(of_locks())
    assert.is_nil((select(2, everything(client, 20))))
    assert.same({}, rights.refused(world.server))
    clean(client)
  end)

  it("suffice for a hand-over between two clients", function()
    local client = client_of(of_locks())
    local lock = assert(client:lock("a"):acquire(0))
    local child = world.program { args = { ("unix://locks:secret@%s?db=1"):format(world.server.path) }, code = [[
      local lock = require("holdfast").new({ url = arg[1], prefix = "lock:", tenant = "lock:" }):lock("a")
      print(lock:acquire(20) == lock, lock:release())
    ]] }
    assert.is_truthy(process.wait_until(function()
      local seen = assert(lock:info()) return seen.waiters == 1
    end, 20))
    assert(lock:release())
    assert.same({ "exit", 0 }, { child:wait(30) })
    assert.matches("true\ttrue", child:output())
    assert.same({}, rights.refused(world.server))
  end)

  it("can be withdrawn for some keys without affecting the client's locks on other keys", function()
    local client = client_of(of_locks(), BRIEFLY)
    local lease = { lease = 3, watchdog = true }
    local locks = {}
    for i = 1, 5 do locks[i] = client:lock("a" .. i, lease) end
    local other = client:lock("b", lease)
    for _, lock in ipairs(locks) do assert(lock:acquire(0)) end
    assert(other:acquire(0))
    world.cli("ACL", "SETUSER", "locks", "resetkeys", "~lock:a*",
      "~redisson_lock_token:*", "~holdfast_queue:*", "~redisson_lock__channel:*")
    assert.is_truthy(process.wait_until(function() return other:lost() ~= nil end, 20))
    local renewals = client:stats().renewals
    assert.is_truthy(process.wait_until(function()
      return client:stats().renewals >= renewals + 10
    end, 20))
    for _, lock in ipairs(locks) do
      assert.is_true(lock:is_held())
      assert(lock:release())
    end
    clean(client)
  end)

  it("are each needed: without any one of them, a call is denied", function()
    for _, right in ipairs(of_locks()) do
      if right:find("^[+~&]") and not NEEDS_A_COUNTERPART[right] then
        world.cli("SCRIPT", "FLUSH")
        local client = client_of(copy(of_locks(), function(word) return word ~= right end), BRIEFLY)
        local code, message = everything(client, BRIEFLY)
        assert.equal("denied", code, right)
        assert.is_truthy(message:find("unix:" .. world.server.path, 1, true), message)
        world.cli("ACL", "SETUSER", "locks", right) -- so that close can remove its keys
        clean(client)
        world.cli("ACL", "DELUSER", "locks")
      end
    end
  end)
end)

-- The rights for every kind, and those for each single kind. A partner with the same user waits at
-- the same time.
describe("the ACL rights", function()
  -- In addition to the programs that begin with the kind's name and _.
  local PROGRAMS = {
    lock = { "", "acquire", "release", "leave", "extend", "renew", "force", "info", "raise", "acquire_all",
      "release_all", "begin", "complete" },
    mutex = { "mutex_" }, read_write = { "rw_" }, semaphore = { "permit_" }, latch = { "latch_" },
    plain_semaphore = { "semaphore_" }, fair = { "fair_", "renew" },
    fence = { "", "fence" },
  }

  local function commands_of(kind)
    local has, own = {}, PROGRAMS[kind]
    for name, text in pairs(require "spec.sim.programs") do
      local is_own = own[1] ~= "" and name:sub(1, #own[1]) == own[1]
      for i = 2, #own do is_own = is_own or own[i] == name end
      for called in text:gmatch(is_own and "%f[%w_]p?call%('(%u+)'" or "^$") do -- also redis.call
        if called ~= "PUBSUB" then has["+" .. called:lower()] = true end
      end
    end
    return has
  end

  -- The scenarios may miss what a program does rarely.
  it("for each kind of lock include every command its programs call, and no others", function()
    local sent = {}
    for word in ("auth select ping info client|setname eval evalsha subscribe unsubscribe publish "
      .. "pubsub|numsub get set del time hlen"):gmatch("%S+") do sent["+" .. word] = true end
    for _, kind in ipairs(acl.kinds) do
      local called, given = commands_of(kind[1]), {}
      for _, word in ipairs(acl.rule_words("lock:", { kinds = { kind } })) do
        given[word] = word:find("^%+") ~= nil
        local needed = called[word] or sent[word] or false
        assert.is_true(not given[word] or needed, kind[1] .. ": " .. word)
      end
      for word in pairs(called) do assert.is_true(given[word], kind[1] .. ": " .. word) end
    end
  end)

  local PARTNER = [[
    local process = require "spec.support.process"
    local client = require("holdfast").new {
      url = arg[1], prefix = "lock:", tenant = "lock:", name = "partner", command_timeout = 10,
    }
    %s
    client:close()
  ]]

  local function partner(code)
    return world.program {
      code = PARTNER:format(code),
      args = { ("unix://locks:secret@%s?db=1"):format(world.server.path) },
    }
  end

  -- Makes the calls until one fails. → true | nil, message, code
  local function all(steps)
    for _, step in ipairs(steps) do
      local done, message, code = step[1][step[2]](step[1], step[3], step[4])
      if done == nil then return nil, message, code end
    end
    return true
  end

  local function is_refused() return #world.cli("ACL", "LOG") > 0 end

  local function await_waiters(lock, count)
    process.wait_until(function()
      local info = lock:info()
      return not info or info.waiters == count or is_refused()
    end, 20)
  end

  -- Waits until the partner has ended, or the server has refused something.
  local function await_end(child)
    process.wait_until(function() return child:status() or is_refused() end, 20)
    child:stop()
  end

  local function writes_and_reads(client)
    local both = client:read_write_lock "rw"
    local write, read = both:write(), both:read()
    local done, message, code = all { { write, "acquire", 0 }, { read, "acquire", 0 } }
    if not done then return nil, message, code end
    local child = partner [[
      local read = client:read_write_lock("rw"):read()
      if read:acquire(20) then read:release() end
    ]]
    await_waiters(write, 1)
    done, message, code = all {
      { write, "release" }, { read, "acquire", 0 }, { read, "extend", 20 }, { read, "release" },
      { read, "release" }, { write, "acquire", 20 }, { write, "force_release" }, { read, "info" },
    }
    await_end(child)
    if not done then return nil, message, code end
    local other = connect("locks"):read_write_lock("rw"):read()
    done, message, code = other:acquire(0)
    if not done then return nil, message, code end
    local _, refused, busy = write:acquire(0)
    done, message, code = other:release()
    if busy ~= "busy" then return nil, refused, busy end
    return done, message, code
  end

  local function takes_permits(client)
    local pool = client:semaphore("pool", { permits = 3 })
    local permit, message, code = pool:acquire(2, 0)
    if not permit then return nil, message, code end
    local child = partner [[
      local permit = client:semaphore("pool"):acquire(2, 20)
      if permit then permit:release() end
    ]]
    await_waiters(pool, 1)
    local done
    done, message, code = all {
      { permit, "extend", 20 }, { permit, "release" }, { pool, "set_permits", 4 },
      { pool, "info" },
    }
    await_end(child)
    return done, message, code
  end

  local LIST, TIMEOUTS = "redisson_lock_queue:{lock:fair}", "redisson_lock_timeout:{lock:fair}"

  local function in_its_database(...)
    world.cli("SELECT", 1)
    world.cli(...)
    world.cli("SELECT", 0)
  end

  -- Waits in the fair lock's list between a dead waiter and one of Java's.
  local function stands_in_the_list(client)
    local lock = client:fair_lock "fair"
    local done, message, code = all { { lock, "acquire", 0 }, { lock, "acquire", 0 } }
    if not done then return nil, message, code end
    in_its_database("RPUSH", LIST, "dead")
    local child = partner [[
      local lock = client:fair_lock("fair")
      if lock:acquire(20) then lock:release() end
    ]]
    await_waiters(lock, 2)
    in_its_database("RPUSH", LIST, JAVA)
    in_its_database("ZADD", TIMEOUTS, (os.time() + 300) * 1000, JAVA)
    local gives_up = partner 'client:fair_lock("fair"):acquire(0.1)'
    await_end(gives_up)
    done, message, code = all {
      { lock, "extend", 20 }, { lock, "check" }, { lock, "info" }, { lock, "release" },
      { lock, "release" },
    }
    await_end(child)
    in_its_database("DEL", LIST, TIMEOUTS)
    if not done then return nil, message, code end
    return all { { lock, "acquire", 20 }, { lock, "force_release" } }
  end

  local function counts(client)
    local latch = client:latch "latch"
    local done, message, code = all { { latch, "set", 2 }, { latch, "count" } }
    if not done then return nil, message, code end
    -- the child stays for as long as a subscription may be kept
    local child = partner 'client:latch("latch"):wait(20) require("spec.support.sys").sleep(3)'
    process.wait_until(function()
      return is_refused() or #world.cli("PUBSUB", "CHANNELS", "*latch*") > 0
    end, 20)
    done, message, code = all {
      { latch, "count_down" }, { latch, "count_down" }, { latch, "set", 1 }, { latch, "delete" },
    }
    await_end(child)
    return done, message, code
  end

  local function takes_plain_permits(client)
    local pool = client:plain_semaphore "pool"
    local done, message, code = all {
      { pool, "set", 3 }, { pool, "acquire", 2 }, { pool, "release", 1 }, { pool, "drain" },
    }
    if not done then return nil, message, code end
    local child = partner [[
      local pool = client:plain_semaphore("pool")
      if pool:acquire(1, 20) then pool:release() end
      while (pool:available() or 0) > 0 do process.sleep(0.01) end
    ]]
    process.wait_until(function()
      return is_refused() or #world.cli("PUBSUB", "CHANNELS", "redisson_sc:*") > 0
    end, 10)
    done, message, code = all { { pool, "add", 3 }, { pool, "available" } }
    process.wait_until(function()
      return is_refused() or #world.cli("PUBSUB", "CHANNELS", "redisson_sc:*") == 0
    end, 10)
    if done then done, message, code = all { { pool, "delete" } } end
    await_end(child)
    return done, message, code
  end

  local KINDS = {
    read_write = writes_and_reads, semaphore = takes_permits, fair = stands_in_the_list,
    latch = counts, plain_semaphore = takes_plain_permits,
  }

  -- These rights are not taken away below: no scenario uses keys with a brace, and all kinds need
  -- the others.
  local function is_sure(word)
    return not word:find("^[~&+]") or word:find("%l:lock:") or word:find("__lock:")
      or NEEDS_A_COUNTERPART[word]
  end

  for kind, scenario in pairs(KINDS) do
    it(kind .. " are enough, and each of them is needed", function()
      local words = rights.of { kind }
      local client = client_of(words)
      local done, message = scenario(client)
      assert.is_truthy(done, message)
      assert.same({}, rights.refused(world.server))
      clean(client)
      local shared = {}
      for _, word in ipairs(rights.of { "lock" }) do shared[word] = kind ~= "lock" end
      local more = copy(words, function(word) return not (shared[word] or is_sure(word)) end)
      assert.is_true(#more > 0)
      for _, right in ipairs(more) do
        world.cli("ACL", "DELUSER", "locks")
        world.cli("ACL", "LOG", "RESET")
        world.cli("SCRIPT", "FLUSH")
        client = client_of(copy(words, function(word) return word ~= right end))
        scenario(client)
        assert.is_true(is_refused(), right)
        world.cli("ACL", "SETUSER", "locks", right)
        clean(client)
      end
    end)
  end

  it("for locks suffice for client:lead", function()
    world.cli("ACL", "LOG", "RESET")
    local client = client_of(of_locks())
    assert(client:lead("boss", { once = true }, function(term) return term:is_leader() and "led" end))
    assert.same({}, rights.refused(world.server))
    clean(client)
  end)

  it("for locks, plus +scan and +hscan, suffice for client:deadlocks()", function()
    world.cli("ACL", "LOG", "RESET")
    local words = of_locks()
    words[#words + 1], words[#words + 2] = "+scan", "+hscan"
    local client = client_of(words)
    local held = assert(client:lock("a"):acquire(0))
    local child = partner 'client:lock("a"):acquire(20):release()'
    assert(process.wait_until(function()
      for _, wait in ipairs(assert(client:deadlocks()).waits) do
        if wait.name == "partner" then return true end
      end
    end, 20))
    assert(held:release())
    assert.same({ "exit", 0 }, { child:wait(20) }, child:output())
    assert.same({}, world.cli("ACL", "LOG"))
    clean(client)
  end)

  it("for one server suffice on each server of shards and of a quorum", function()
    local urls = {}
    for i, server in ipairs { world.server, world.another() } do
      local rule = { "ACL", "SETUSER" }
      for _, word in ipairs(rights.of { "lock", "read_write", "semaphore", "fair", "latch" }) do
        rule[#rule + 1] = word
      end
      assert.equal("OK", server:cli(rule))
      urls[i] = ("unix://locks:secret@%s"):format(server.path)
    end
    local shards = holdfast.new { servers = urls, mode = "shards", prefix = "lock:", tenant = "lock:" }
    for i = 1, 8 do
      local lock, fair = shards:lock("l" .. i), shards:fair_lock("f" .. i)
      assert(lock:acquire(0):release()) assert(fair:acquire(0):release())
      assert(shards:semaphore("s" .. i, { permits = 1 }):acquire(1, 0)):release()
      assert(shards:read_write_lock("r" .. i):read():acquire(0):release())
      local latch = shards:latch("c" .. i)
      assert(latch:set(1))
      assert.equal(0, latch:count_down())
    end
    shards:close()
    local quorum = holdfast.new { servers = urls, mode = "quorum", prefix = "lock:", tenant = "lock:" }
    assert(quorum:lock("q"):acquire(0):release())
    quorum:close()
    for _, server in ipairs { world.server, world.servers[1] } do
      assert.same({}, rights.refused(server))
      server:cli("FLUSHALL")
    end
  end)
end)

describe("holdfast acl", function()
  local function printed(...)
    local code, text = command.run(nil, { "acl", ... })
    assert.equal(0, code, text)
    return text
  end

  it("escapes prefix characters that Redis or redis-cli would interpret", function()
    local text = printed("a*?[b]\\")
    assert.truthy(text:find([[ "~a\\*\\?\\[b\\]\\\\*" ]], 1, true), text)
    assert.truthy(printed('a"'):find([[ "~a\"*" ]], 1, true))
  end)

  it("prints no key names in double braces for a prefix that contains a brace", function()
    assert.is_nil(printed("{a}:", "--kinds", "all"):find("{{", 1, true))
  end)

  it("prints the user name, a reset of earlier rights, and the extra rights each option needs", function()
    local function words(...)
      local list = {}
      for word in printed(...):gmatch("[^ \n]+") do list[word] = true end
      return list
    end
    assert.matches("^ACL SETUSER holdfast reset on resetchannels ", printed "shop:")
    assert.matches('^ACL SETUSER "a\\"b" reset on ', (printed("shop:", "--user", 'a"b')))
    local plain = words "shop:"
    for option, needed in pairs {
      sentinel = { "+role" }, sync = { "+wait" },
      cluster = { "+cluster|slots", "+cluster|myid", "+asking", "+ssubscribe", "+sunsubscribe", "+spublish", "+pubsub|shardnumsub",
        "&holdfast_listening:{shop:*", "&holdfast_listening:shop:*" },
      idempotent = { "~holdfast_once:shop:*", "~holdfast_queue:{holdfast_once:shop:*" },
    } do
      local more = words("shop:", "--" .. option)
      for _, word in ipairs(needed) do
        assert.same({ word, true }, { word, more[word] })
        assert.is_nil(plain[word])
      end
      for word in pairs(plain) do assert.same({ word, true }, { word, more[word] }) end
    end
    local runs_jobs = words("shop:", "--kinds", "fence", "--idempotent")
    for word in pairs(plain) do -- the record of a running job is a lock
      if word:find "^%+" then assert.same({ word, true }, { word, runs_jobs[word] }) end
    end
    assert.is_true(runs_jobs["~holdfast_once:shop:*"] and not runs_jobs["~redisson_lock_token:{shop:*"])
  end)

  it("refuses a prefix that could match internal keys of another user's locks", function()
    local core = require "holdfast.core"
    for _, name in pairs(core.wire.prefixes) do assert.truthy(acl.check(name), name) end
    for _, prefix in ipairs {
      "h", "holdfast", "holdfast_", "holdfast_queue:{a:", "holdfast_once:b:", "holdfast_known", "r", "redisson",
      "redisson_", "redisson_lock_token:", "{",
    } do
      local code, said = command.run(nil, { "acl", prefix })
      assert.equal(64, code)
      assert.truthy(said:find(('holdfast acl: PREFIX must be a string that is not "{", .*, not "%s"\n$')
        :format(prefix)), said)
    end
    for _, prefix in ipairs { "b:", "ho:", "holdfast:", "redis:", "redisson:", "{b}:", "R" } do
      assert.is_nil(acl.check(prefix))
    end
  end)

  it("strips an existing user of all other rights and of every other password", function()
    local words = rights.of { "lock" }
    local function set(...) assert.equal("OK", world.server:cli { "ACL", "SETUSER", "locks", ... }) end
    set("on", "nopass", "~*", "&*", "+@all", "(~* +@all)", ">old")
    table.remove(words) -- its password
    set(unpack(words, 2))
    for _, password in ipairs { "", "old", "secret" } do
      local stranger = assert(resp.connect { path = world.server.path })
      assert.matches("^WRONGPASS", stranger:call("AUTH", "locks", password).err)
      stranger:close()
    end
    set ">secret"
    local user = assert(resp.connect { path = world.server.path })
    assert.equal("OK", user:call("AUTH", "locks", "secret"))
    assert.matches("^NOPERM", user:call("SET", "other", "1").err)
    assert.matches("^NOPERM", user:call("PUBLISH", "other", "1").err)
    assert.matches("^NOPERM", user:call("FLUSHALL").err)
    user:close()
  end)

  it("refuses prefixes, users and kinds that no ACL rule can contain", function()
    for _, words in ipairs { {}, { "" }, { "a b" }, { "a", "b" }, { "a", "--kinds", "locks" },
      { "a", "--user", "b c" }, { "a", "--kinds", "lock,,fence" }, { "--", "a", "b" } } do
      table.insert(words, 1, "acl")
      assert.equal(64, (command.run(nil, words)))
    end
  end)
end)

describe("the ACL rights for an operator of the command", function()
  local SEEING = { "+scan", "+hscan", "+strlen" }

  it("equal those that docs/how-to/redis.md shows", function()
    assert.matches("also needs `" .. table.concat(SEEING, " "):gsub("%+", "%%+") .. "`",
      pages.read("docs/how-to/redis.md"))
  end)

  local function user(without)
    world.cli("ACL", "DELUSER", "locks")
    local words = rights.of({ "lock", "mutex" }, { idempotent = true })
    for _, word in ipairs(SEEING) do words[#words + 1] = word end
    client_of(copy(words, function(word) return word ~= without end)):close()
  end

  local function run(subcommand, ...)
    local env = { HOLDFAST_URL = ("unix://locks:secret@%s"):format(world.server.path) }
    return command.run(nil, { env = env, subcommand, "--tenant", "lock:", ... })
  end

  -- → the output of each subcommand while a job holds a lock
  local function everything_of_command()
    local child = command.start(nil, { "hold", "--tenant", "lock:", "--name", "nightly", "lock:a",
      env = { HOLDFAST_URL = ("unix://locks:secret@%s"):format(world.server.path) } })
    assert.is_truthy(child:wait_output("^lock:a %d+\n", 20), child:output())
    assert.is_truthy(process.wait_until(function()
      return #world.cli("KEYS", "holdfast_client:*") == 1
    end, 30))
    local said = {}
    for i, words in ipairs {
      { "run", "-n", "lock:b", "lock:c", "--", "true" },
      { "run", "--idempotent", "1h", "lock:a", "-n", "-E", "5", "--", "true" },
      { "run", "--idempotent", "1h", "lock:done", "--", "true" },
      { "run", "--once-per", "1h", "lock:once", "--", "true" },
      { "show", "lock:once" }, { "break", "-y", "lock:once" }, { "ls" }, { "ls", "--mutex" },
      { "top", "--interval", "0.1" }, { "show", "lock:a" }, { "show", "lock:done" },
      { "break", "-y", "lock:done" }, { "break", "-y", "lock:a" }, { "ping" },
    } do said[i] = ("%d %s"):format(run(unpack(words))) end
    child:kill("KILL")
    child:wait(20)
    world.cli("FLUSHALL")
    return table.concat(said, "\n")
  end

  it("suffice for every subcommand of the command", function()
    user()
    local said = everything_of_command()
    for _, pattern in ipairs {
      "^0 \n5 holdfast run: [^\n]+ held by %S+ %(pid %d+, nightly%)[^\n]+\n\n0 \n",
      "\nlock:a +%S+ pid %d+ nightly ", "\nlock:done +done ",
      "\n0 1 lock, ", "\nwho +%S+ pid %d+ nightly\n", "\ndone +for 3",
      "\nrun +done on %S+ pid %d+, began ", "\n0 lock:once: may run again",
      "\n0 lock:done: may run again", "\n0 lock:a: broken",
      "\n0 answered in ",
    } do
      assert.matches(pattern, said)
    end
  end)

  it("are each needed: without any one of them, the command prints something else", function()
    user()
    local function shape(said)
      return (said:gsub("%d[%d.]+", "N"):gsub("%x+%-%x+%-%x+%-%x+%-%x+:%d", "U"))
    end
    local all = shape(everything_of_command())
    for _, right in ipairs { "~holdfast_once:lock:*", "~holdfast_queue:{holdfast_once:lock:*", "+scan",
      "+strlen" } do
      user(right)
      assert.are_not.equal(all, shape(everything_of_command()), right)
    end
  end)
end)
