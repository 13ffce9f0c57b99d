-- Every call with everything that it must not get: wrong arguments, wrong options, and values just
-- outside their bounds.

local holdfast = require "holdfast"
local misuse = require "spec.support.misuse"
local world = require("spec.support.world").new()

local says = misuse.says
local unpack = table.unpack or unpack
local nan, huge = 0 / 0, math.huge

local client, lock

before_each(function()
  world.open()
  client = world.client()
  lock = client:lock("k")
end)
after_each(world.close)

local WRONG = io.stdout -- never valid as an argument or an option of holdfast

local KEY = { "key", "k", "a string of 1 to 1048576 bytes" }
local RESOURCE = { "resource", "k", KEY[3] }
local WAIT = { "wait", 0, "a non-negative number of seconds or math.huge" }
local SECONDS = { "seconds", 1, "a number of seconds from 0.001 to 1e9" }
local COUNT = { "count", 1, "a whole number from 1 to 1000" }
local MANY = { "count", 1, "a whole number from 1 to 1e9" }
local PERMITS = { "permits", 1, "a whole number from 0 to 1e9" }
local OPTIONS = { "options", {}, "a table" }
local function call_back(given) -- a leader resigns
  if type(given) == "table" then given:resign() end
end
local FN = { "fn", call_back, "a function" }
local HELD = { "lock", nil, "a lock or a term" } -- each case has its own valid one
local PART = "a string of 1 to 500000 bytes, or a number (at most 2^53 if whole)"

local PERIOD = { "period", 1, "a number of seconds from 0.1 to 1e9" }

local MADE, RUN = { KEY, OPTIONS }, { KEY, OPTIONS, FN }

-- kind of handle → method → its arguments: the name in messages, a valid one, what it must be
local ARGUMENTS = {
  client = {
    lock = MADE, mutex = MADE, fair_lock = MADE, read_write_lock = MADE, semaphore = MADE,
    plain_semaphore = MADE, latch = MADE, fence = { RESOURCE, OPTIONS },
    multi_lock = { { "keys", { "k" }, "a list of 1 to 1024 keys" }, OPTIONS },
    one_by_one = { OPTIONS },
    with_lock = RUN, with_read_lock = RUN, with_write_lock = RUN, with_fair_lock = RUN,
    idempotent = RUN, lead = RUN, once = { KEY, PERIOD, OPTIONS, FN },
  },
  lock = { acquire = { WAIT }, extend = { SECONDS }, fence_headers = { RESOURCE } },
  multi_lock = { acquire = { WAIT }, extend = { SECONDS } },
  semaphore = {
    acquire = { COUNT, WAIT }, try_acquire = { COUNT }, with_permit = { OPTIONS, FN },
    set_permits = { PERMITS },
  },
  permit = { extend = { SECONDS } },
  plain_semaphore = {
    acquire = { MANY, WAIT }, try_acquire = { MANY }, release = { MANY }, set = { PERMITS },
    add = { { "change", 1, "a whole number from -1e9 to 1e9" } }, with_permit = { OPTIONS, FN },
  },
  latch = { set = { MANY }, count_down = { { "amount", 1, MANY[3] } }, wait = { WAIT } },
  fence = {
    call = { HELD, { "command[1]", "SET", "a string or a number" } },
    run = { HELD, { "commands", { { "SET", "k", 1 } }, "a list of 1 to 1000 commands" } },
    claim = { HELD },
  },
  one_by_one = { execute = { { "type", "a", PART }, { "id", 1, PART }, OPTIONS, FN } },
  read_write_lock = {}, term = {}, watchdog = {},
}

local function options_of(module, field) return require("holdfast." .. module)[field or "options"] end

local function named(names)
  local all = {}
  for name in names:gmatch("[%w_]+") do all[name] = true end
  return all
end

-- call → option, for each call with options
local KNOWN = {
  ["client:lock"] = options_of "lock",
  ["client:mutex"] = options_of "lock",
  ["client:fair_lock"] = options_of "read_write_lock",
  ["client:read_write_lock"] = options_of "read_write_lock",
  ["client:multi_lock"] = options_of "read_write_lock", -- these include `owner`
  ["client:semaphore"] = options_of "semaphore",
  ["client:plain_semaphore"] = options_of "plain_semaphore",
  ["client:latch"] = options_of "latch",
  ["client:fence"] = options_of "fence",
  ["client:one_by_one"] = options_of "one_by_one",
  ["client:with_lock"] = options_of "with_lock",
  ["client:with_read_lock"] = options_of("read_write_lock", "with_options"),
  ["client:with_write_lock"] = options_of("read_write_lock", "with_options"),
  ["client:with_fair_lock"] = options_of("read_write_lock", "with_options"),
  ["client:idempotent"] = options_of "idempotent",
  ["client:lead"] = options_of "lead",
  ["client:once"] = options_of "once",
  ["semaphore:with_permit"] = named "count wait abort_on_loss",
  ["plain_semaphore:with_permit"] = named "count wait",
  ["one_by_one:execute"] = named "wait lease queue abort_on_loss",
  ["holdfast.new"] = named [[url servers mode restart_guard tls sentinel_user sentinel_password sync name
    lease wait prefix tenant fencing token_ttl connect_timeout command_timeout grant_lease async_release
    keep crash_release class on_event driver]],
  ["holdfast.new: tls"] = named "ca_file ca_path cert key server_name verify",
  ["holdfast.new: sync"] = named "replicas timeout",
  ["holdfast.multi_lock"] = named "wait",
  ["holdfast.idempotent_request"] = options_of "idempotent_request",
  ["holdfast.fence"] = options_of "admission",
  ["holdfast.status"] = named "client host pattern",
}

local function not_wrong(what, name, must)
  return ("%s: %s must be %s, not a userdata"):format(what, name, must)
end

-- `make(options)` returns the call and its arguments with these options.
local function rejects_options(what, make)
  says(what .. ': unknown option "leese"', make { leese = 1 })
  for name, check in pairs(KNOWN[what]) do
    local must = type(check) == "function" and check(WRONG)
    says(must and not_wrong(what, name, must) or ("%s: %s must be "):format(what, name),
      make { [name] = WRONG })
  end
end

local handles, losses

local function make_handles()
  local semaphore = client:semaphore("pool", { permits = 1 })
  handles = {
    client = client, watchdog = client:watchdog(), lock = lock, semaphore = semaphore,
    permit = assert(semaphore:acquire()), multi_lock = client:multi_lock { "a", "b" },
    read_write_lock = client:read_write_lock "rw", fence = client:fence "resource",
    plain_semaphore = client:plain_semaphore "plain", latch = client:latch "latch",
    one_by_one = client:one_by_one(),
  }
  assert(client:lead("leader", { once = true }, function(term) handles.term = term end))
  HELD[2] = lock
end

-- Calls f(kind, handle, name, method) for each method.
local function each_method(f)
  for kind in pairs(ARGUMENTS) do
    local handle = handles[kind]
    for name, method in pairs(debug.getmetatable(handle).__index) do
      if not name:find "^__" then f(kind, handle, name, method) end
    end
  end
end

-- Causes a loss that the next call reports, unless this raises an error for its caller.
local function lose()
  losses = 0
  local lost = client:lock("lost", { on_lost = function() losses = losses + 1 end })
  assert(lost:acquire())
  world.cli("DEL", "lost")
  assert.equal("lost", select(3, lost:check()))
  handles.lost = lost
end

describe("an error at the caller's line", function()

  local function not_reported()
    assert.equal(0, losses)
    assert.is_false(handles.lost:is_held())
    assert.equal(1, losses)
    handles.lost = nil
  end

  before_each(make_handles)
  after_each(function()
    assert(handles.permit:release())
    world.cli("DEL", "pool")
  end)

  it("is raised by each method called without a colon, before it does anything", function()
    lose()
    each_method(function(kind, handle, name, method)
      local ours = "holdfast." .. kind
      local text = ("%s:%s: call it with a colon on a %s, not on "):format(kind, name, ours)
      says(text .. "nil", method)
      says(text .. '"k"', method, "k")
      says(text .. "a table", method, {})
      says(text .. "a userdata", method, WRONG)
      says(text .. "a holdfast.", method, handle == client and lock or client)
      says(text .. "a " .. ours, method, setmetatable({}, { __metatable = ours }))
    end)
    not_reported()
  end)

  it("names the wrong argument of each method, before the method does anything", function()
    lose()
    each_method(function(kind, handle, name, method)
      local what, arguments = kind .. ":" .. name, ARGUMENTS[kind][name] or {}
      local count = debug.getinfo(method, "u").nparams -- counts self; nil in Lua 5.1
      assert.equal(count or #arguments + 1, #arguments + 1, what)
      local before = { handle }
      for _, argument in ipairs(arguments) do
        local called, good, must = unpack(argument, 1, 3)
        local given = { unpack(before) }
        given[#given + 1] = WRONG
        says(not_wrong(what, called, must), method, unpack(given))
        before[#before + 1] = good
      end
    end)
    not_reported()
  end)

  it("names the wrong or unknown option of each method", function()
    each_method(function(kind, handle, name, method)
      local before = { handle }
      for _, argument in ipairs(ARGUMENTS[kind][name] or {}) do
        if argument == OPTIONS then
          rejects_options(kind .. ":" .. name, function(options)
            local given = { unpack(before) }
            given[#given + 1], given[#given + 2] = options, print
            return method, unpack(given)
          end)
        end
        before[#before + 1] = argument[2]
      end
    end)
    says(not_wrong("client:multi_lock", "owner", 'a string of 1 to 255 bytes other than "mode"'),
      client.multi_lock, client, { "k" }, { owner = WRONG })
    says('client:multi_lock: "keep" is an option of client:lock', client.multi_lock, client, { "k" },
      { keep = 1 })
  end)

  it("never shows the password of a URL, whatever argument or option it is", function()
    local URL, seen = "redis://u:s3cretpw@h:1", 0
    local function hides(call, ...)
      local message = tostring((select(2, pcall(call, ...))))
      assert.is_nil(message:find("s3cretpw", 1, true), message)
      seen = seen + (message:find("redis://***@h:1", 1, true) and 1 or 0)
    end
    local function each_option(what, make)
      hides(make { [URL] = 1 })
      for name, check in pairs(KNOWN[what]) do
        if type(check) == "function" and check(URL) then hides(make { [name] = URL }) end
      end
    end
    each_method(function(kind, handle, name, method)
      hides(method, URL)
      local before = { handle }
      for _, argument in ipairs(ARGUMENTS[kind][name] or {}) do
        local given = { unpack(before) }
        given[#given + 1] = URL
        local takes_it = tostring(argument[3]):find("^a string")
        if not takes_it then hides(method, unpack(given)) end
        if argument == OPTIONS then
          each_option(kind .. ":" .. name, function(options)
            given[#given], given[#given + 1] = options, print
            return method, unpack(given)
          end)
        end
        before[#before + 1] = argument[2]
      end
    end)
    for _, name in ipairs {
      "url", "servers", "mode", "restart_guard", "driver", "tenant", "lease", "name", "tls", "sync",
    } do
      local value = name == "tenant" and URL .. " " or name == "url" and { URL } or URL
      hides(holdfast.new, { [name] = value })
      hides(holdfast.new, "redis://h", { [name] = value })
    end
    for _, options in ipairs {
      { servers = { URL, 5 } }, { servers = { [URL] = 1 } },
      { servers = { { url = "redis://h", [URL] = 1 } } },
      { servers = { { url = "redis://h", weight = URL } } },
      { servers = { URL, URL }, mode = "quorum" },
      {
        servers = { { url = "redis://a", name = URL }, { url = "redis://b", name = URL } },
        mode = "shards",
      },
    } do hides(holdfast.new, options) end
    hides(holdfast.new, URL, URL)
    hides(holdfast.new, URL, { url = URL })
    hides(holdfast.multi_lock, URL)
    hides(holdfast.multi_lock, { client:lock(URL), client:lock(URL) })
    hides(holdfast.with_lock, "k", URL)
    assert.is_true(seen > 100, seen)
  end)

  it("never shows the password of a URL used as a key", function()
    local key = "redis://u:s3cretpw@h:1"
    local away = world.client { url = "redis://127.0.0.1:1", connect_timeout = 0.2 }
    for _, message in ipairs {
      select(2, away:lock(key):acquire(0)), select(2, away:mutex(key):acquire(0)),
      select(2, away:one_by_one():execute(key, 1, { wait = 0 }, print)),
      (select(2, away:fence(key):call(away:lock(key), "SET", "k", 1))),
    } do assert.matches("redis://***@h:1", message, 1, true) end
  end)

  it("names the calls that accept the option if this one does not", function()
    local bounded = "client:semaphore and client:one_by_one"
    for calls, names in pairs {
      ["holdfast.new"] = [[url servers mode restart_guard tls sync prefix tenant driver grant_lease
        connect_timeout command_timeout sentinel_user sentinel_password crash_release]],
      ["client:lock"] = "owner watchdog on_lost interruptible deadlock_check",
      ["client:lock, client:mutex, client:with_lock and client:one_by_one"] = "keep",
      ["client:lock, client:with_lock, client:lead, " .. bounded] = "max_hold",
      ["client:lock, client:with_lock, " .. bounded] = "max_waiters",
      ["client:one_by_one"] = "queue",
      ["client:idempotent"] = "info delete_key replay fingerprint keep_on_error",
    } do
      for name in pairs(named(names)) do
        says(('client:fence: "%s" is an option of %s'):format(name, calls), client.fence, client, "k",
          { [name] = 1 })
      end
    end
  end)

  it("names a key that is reserved for internal use", function()
    local name = "holdfast_fence:x"
    local text = 'must be one that does not begin with "holdfast_fence:", which holdfast uses for its own '
      .. 'keys, not "holdfast_fence:x"'
    for method, arguments in pairs(ARGUMENTS.client) do
      local called = arguments[1][1]
      if arguments[1][3] == KEY[3] then
        says(("client:%s: %s %s"):format(method, called, text), client[method], client, name, nil, print)
      end
    end
    says("client:multi_lock: keys " .. text, client.multi_lock, client, { name })
    says("one_by_one:execute: key " .. text, handles.one_by_one.execute, handles.one_by_one,
      "holdfast", "fence:x", print)
  end)

  it("names what is wrong with each argument of a module function", function()
    for _, name in ipairs { "new", "with_lock", "multi_lock", "idempotent_request", "fence",
      "status" } do
      says(("holdfast.%s: call it with a dot"):format(name), holdfast[name], holdfast)
    end
    says(not_wrong("holdfast.new", "options", "a table"), holdfast.new, WRONG)
    says(not_wrong("holdfast.new", "options", "a table"), holdfast.new, "redis://h", WRONG)
    says(not_wrong("client:with_lock", "key", KEY[3]), holdfast.with_lock, WRONG)
    says(not_wrong("client:with_lock", "fn", "a function"), holdfast.with_lock, "k", {}, WRONG)
    says(not_wrong("holdfast.multi_lock", "locks", "a list of 1 to 1024 locks"),
      holdfast.multi_lock, WRONG)
    says(not_wrong("holdfast.multi_lock", "options", "a table"), holdfast.multi_lock, { lock }, WRONG)
    rejects_options("holdfast.multi_lock", function(options)
      return holdfast.multi_lock, { lock }, options
    end)
    rejects_options("holdfast.new", function(options) return holdfast.new, options end)
    rejects_options("holdfast.new", function(options) return holdfast.new, "redis://h", options end)
    for _, part in ipairs { "tls", "sync" } do
      rejects_options("holdfast.new: " .. part, function(options)
        return holdfast.new, { url = "rediss://h", [part] = options }
      end)
    end
  end)

  it("is raised outside nginx by functions that need it, after a check of their options", function()
    for _, name in ipairs { "idempotent_request", "fence", "status" } do
      local what, call = "holdfast." .. name, holdfast[name]
      says(not_wrong(what, "options", "a table"), call, WRONG)
      rejects_options(what, function(options) return call, options end)
      says(what .. ": works only under ngx_lua", call, {})
    end
    says("holdfast.metrics: works only under ngx_lua", holdfast.metrics)
    says("holdfast.idempotent_request: replay with key needs principal", holdfast.idempotent_request,
      { key = "k", replay = true })
  end)

  it("is not raised by finish and capture outside nginx, which do nothing", function()
    assert.equal(0, select("#", holdfast.finish()))
    assert.equal(0, select("#", holdfast.capture()))
  end)

  -- Makes each call of a client that has the option `option`, with `options`.
  local function each_with(option, one, options, text, ...)
    for method, arguments in pairs(ARGUMENTS.client) do
      local what = "client:" .. method
      if KNOWN[what] and KNOWN[what][option] ~= nil then
        local given, is_wanted = { one }, true
        for _, argument in ipairs(arguments) do
          given[#given + 1] = argument == OPTIONS and options or argument[2]
        end
        for _, left_out in ipairs { ... } do is_wanted = is_wanted and method ~= left_out end
        if is_wanted then says(("%s: %s"):format(what, text), one[method], unpack(given)) end
      end
    end
  end

  it("names options of a method that exclude each other", function()
    local bounds = "max_hold limits how long the watchdog renews the lock"
    each_with("max_hold", client, { lease = 0.5, max_hold = 9 }, bounds, "lead", "once")
    each_with("max_hold", client, { watchdog = false, max_hold = 9 }, bounds, "lead", "once", "one_by_one")
    each_with("owner", client, { owner = "me", keep = 1 }, "keep and owner cannot be combined")
    local bounded = client:one_by_one { max_hold = 9 }
    says("one_by_one:execute: " .. bounds, bounded.execute, bounded, "a", 1, { lease = 0.5 }, print)
    local crashing = world.client { crash_release = true }
    local owner = ("0"):rep(36) .. ":1"
    each_with("owner", crashing, { owner = owner }, "owner must not have the form <client uuid>:<n>")
    says("client:multi_lock: owner must not have the form", crashing.multi_lock, crashing, { "k" },
      { owner = owner })
  end)

  it("names what a quorum does not support", function()
    local quorum = holdfast.new { mode = "quorum", servers = { "redis://127.0.0.1:1" } }
    local without = {
      read_write_lock = "read/write locks", fair_lock = "fair locks", semaphore = "semaphores",
      plain_semaphore = "plain semaphores", latch = "latches", fence = "fences",
      with_read_lock = "read/write locks", with_write_lock = "read/write locks",
      with_fair_lock = "fair locks", once = "schedules",
    }
    local left_out = {}
    for method, what in pairs(without) do
      left_out[#left_out + 1] = method
      says(("client:%s: %s need a single server, not a quorum"):format(method, what), quorum[method],
        quorum, "k", nil, print)
    end
    each_with("max_waiters", quorum, { max_waiters = 1 }, "max_waiters does not work in a quorum",
      unpack(left_out))
    each_with("keep", quorum, { keep = 1 }, "the option keep needs a single server, not a quorum")
    each_with("on_change", quorum, { on_change = print }, "on_change needs a single server, not a quorum")
    quorum:mutex("k", { keep = 0 })
    quorum:close()
  end)

  it("names options of holdfast.new that exclude each other", function()
    local url, two = "redis://h", { "redis://h", "redis://i" }
    local many = {}
    for i = 1, 33 do many[i] = "redis://h:" .. i end
    for text, options in pairs {
      ["url and servers cannot be combined"] = { url = url, servers = two },
      ["servers need a mode"] = { servers = two },
      ["mode needs servers"] = { mode = "quorum" },
      ["restart_guard works only with"] = { url = url, restart_guard = 1 },
      ["restart_guard works only with mode"] = { mode = "shards", servers = two, restart_guard = 1 },
      ["sync does not work with"] = { mode = "quorum", servers = two, sync = {} },
      ["at most 32 servers"] = { mode = "quorum", servers = many },
      ["weight and name work only with"] = { mode = "quorum", servers = { { url = url } } },
      ['two servers are named "a"'] = {
        mode = "shards", servers = { { url = url, name = "a" }, { url = "redis://i", name = "a" } },
      },
      ["servers: "] = { mode = "shards", servers = { url, "http://h" } },
      ["url: "] = { url = "http://h" },
      ["sync: timeout must be less than command_timeout"] = {
        url = url, command_timeout = 0.1, sync = { timeout = 0.1 },
      },
      ["tls: cert and key must be set together"] = { url = "rediss://h", tls = { cert = "c" } },
      ["tls: cert and key must be set"] = { url = "rediss://h", tls = { key = "k" } },
      ["sentinel_user and sentinel_password"] = { url = url, sentinel_user = "u" },
      ["sentinel_user and sentinel_password need"] = { url = url, sentinel_password = "p" },
      ["sentinel_user needs sentinel_password"] = { url = "redis+sentinel://h/m", sentinel_user = "u" },
      ["the option keep needs a single server"] = { mode = "quorum", servers = two, keep = 1 },
      ["crash_release does not work in a quorum"] = {
        mode = "quorum", servers = two, crash_release = true,
      },
    } do says("holdfast.new: " .. text, holdfast.new, options) end
    says("holdfast.new: sync: timeout must be less than command_timeout", holdfast.new,
      { url = url, sync = { timeout = 3 } })
    for _, scheme in ipairs { "redis", "rediss", "valkeys" } do
      holdfast.new { url = scheme .. "+sentinel://h/m", sentinel_user = "u", sentinel_password = "" }
    end
    says("holdfast.new: put the port in the URL", holdfast.new, url, 6379)
    says("holdfast.new: pass one table of options", holdfast.new, {}, {})
    says("holdfast.new: the first argument is already a URL", holdfast.new, url, { url = url })
  end)

  it("names the environment variable that is wrong", function()
    for wrong, env in pairs {
      ["url in $HOLDFAST_URL: "] = { HOLDFAST_URL = "http://h" },
      ["servers in $HOLDFAST_SERVERS must be URLs separated by commas (number 1 is empty)"] =
        { HOLDFAST_SERVERS = " " },
      ["servers in $HOLDFAST_SERVERS must be URLs separated by commas (number 3 is empty)"] =
        { HOLDFAST_SERVERS = "redis://g redis://h,,redis://i" },
      ["servers in $HOLDFAST_SERVERS must be a list"] = { HOLDFAST_SERVERS = (",redis://h"):rep(65):sub(2) },
    } do
      local child = world.program {
        code = [[
          local holdfast = require "holdfast"
          local place = debug.getinfo(1, "S").short_src .. ":%d: holdfast.new: " .. arg[1]
          for _, call in ipairs {
            function() local _ = holdfast.new() end,
            function() local _ = holdfast.with_lock("k", print) end,
          } do
            local _, message = pcall(call)
            local begin = place:format(debug.getinfo(call, "S").linedefined)
            assert(message:sub(1, #begin) == begin, message)
          end
        ]],
        args = { wrong }, env = env,
      }
      assert.same({ "exit", 0 }, { child:wait(20) }, child:output())
    end
  end)

  it("names a fence's wrong key, and a lock without tokens", function()
    local near, far = handles.fence, world.client({ url = "redis+cluster://127.0.0.1:1" }):fence "r"
    local held = assert(lock:acquire())
    local bare = assert(client:lock("bare", { fencing = false }):acquire())
    for name, wrong in pairs {
      call = function(fence, key, by) return fence.call, fence, by, "SET", key, 1 end,
      run = function(fence, key, by) return fence.run, fence, by, { { "SET", key, 1 } } end,
    } do
      local what = "fence:" .. name
      says(what .. ": a command's key must be " .. KEY[3], wrong(near, "", held))
      says(what .. ": a command's key must be one that does not begin with", wrong(near, "holdfast_known", held))
      says(what .. ': the key "b" must be in the same slot or shard as', wrong(far, "b", held))
      says(what .. ": lock must have fencing tokens", wrong(near, "b", bare))
    end
    says("fence:claim: lock must have fencing tokens", near.claim, near, bare)
    says("lock:fence_headers: the lock has no fencing tokens", bare.fence_headers, bare, "r")
    assert(held:release()) assert(bare:release())
  end)
end)

-- ---- bounds ----

local function text(size) return ("x"):rep(size) end

local function list(size, item)
  local all = {}
  for i = 1, size do all[i] = type(item) == "function" and item(i) or item end
  return all
end

local function server(i) return "redis://127.0.0.1:" .. i end

local TIMEOUT = { { 0.001, 3600 }, { 0.0009, 3600.5 } }
local LEASE = { { 0.001, 1e9 }, { 0.0009, 1e9 + 1, nan, -1, 0, huge, -huge, "1", true } }
local TOKEN_TTL = { { 0.001, 1e9, huge }, { 0.0009, 1e9 + 1, -huge, nan, -1, 0, "1", true } }
local WAITS = { { 0, 0.0001, huge }, { -0.0001, nan, -1, -huge, "1", true } }
local CLASS = { { "", text(63), " ~" }, { text(64), "\31", "\127" } }
local ANY = { { -huge, 0, huge }, { nan } }

-- call → option → values at the bounds, values just outside
local OPTION_BOUNDS = {
  ["holdfast.new"] = {
    lease = LEASE, wait = WAITS, token_ttl = TOKEN_TTL, class = CLASS,
    keep = { { 0, 60 }, { -0.5, 60.5, nan } },
    connect_timeout = TIMEOUT, command_timeout = TIMEOUT, grant_lease = TIMEOUT,
    name = { { "", text(127), "!~" }, { text(128), " ", "\127" } },
    tenant = { { "x", text(127), "!~\128\255" }, { "", text(128), " ", "\127" } },
  },
  quorum = { restart_guard = { { 0, 1e9 }, { -0.5, 1e9 + 1, nan } } },
  sentinel = { sentinel_password = { { "", text(511), 5 }, { text(512), "a\0b" } } },
  servers = { quorum = { { 1, 32 }, { 0, 33 } }, shards = { { 1, 64 }, { 0, 65 } } },
  shard = {
    weight = { { 1, 100 }, { 0, 101, 1.5 } }, name = { { "x", text(255) }, { "", text(256), "a\0b" } },
  },
  ["holdfast.new: sync"] = {
    replicas = { { 1, 1000 }, { 0, 1001, 1.5, nan } }, timeout = { { 0.001 }, { 0.0009, 3600.5 } },
  },
  ["holdfast.new: tls"] = {
    ca_file = { { "x" }, { "", "a\0b" } }, ca_path = { { "x" }, { "", "a\0b" } },
  },
  ["client:lock"] = {
    lease = LEASE, wait = WAITS, token_ttl = TOKEN_TTL, class = CLASS, max_waiters = {
      { 0, 1e9 }, { -1, 1e9 + 1, 0.5 },
    },
    keep = { { 0, 60 }, { -0.5, 60.5, nan, "1" } }, max_hold = LEASE,
    deadlock_check = { { 0.5, 1e9 }, { 0.4999, 1e9 + 1, nan } },
    owner = { { "x", text(255) }, { "", text(256) } },
  },
  ["client:semaphore"] = { permits = { { 1, 1e9 }, { 0, 1e9 + 1, 1.5 } } },
  ["client:idempotent"] = { fingerprint = { { "x" }, { "" } }, expire = LEASE },
  ["client:one_by_one"] = {
    wait = ANY, lease = { { -huge, 0, 0.001, 1e9 }, { 0.0009, 1e9 + 1, nan } },
  },
  ["client:fence"] = { ttl = TOKEN_TTL },
  ["holdfast.idempotent_request"] = {
    status = { { 200, 599 }, { 199, 600, 200.5 } }, expire = LEASE,
  },
}

describe("numeric limits", function()
  -- `try(value)` returns whether the value is accepted.
  local function check(what, bounds, try)
    for i, values in ipairs(bounds) do
      for _, value in ipairs(values) do
        local shown = type(value) == "string" and "a text of " .. #value or tostring(value)
        assert.equal(i == 1, (pcall(try, value)), ("%s: %s"):format(what, shown))
      end
    end
  end

  it("are enforced for options: the bounds are accepted, anything beyond is refused", function()
    local url = world.server:url()
    local calls = {
      ["holdfast.new"] = function(options)
        options.url = url
        holdfast.new(options):close()
      end,
      quorum = function(options)
        options.mode, options.servers = "quorum", { url }
        holdfast.new(options):close()
      end,
      sentinel = function(options)
        options.url = "redis+sentinel://127.0.0.1:1/m"
        holdfast.new(options):close()
      end,
      servers = function(options)
        local mode, count = next(options)
        holdfast.new { mode = mode, servers = list(count, server) }:close()
      end,
      shard = function(options)
        options.url = url
        holdfast.new { mode = "shards", servers = { options } }:close()
      end,
      ["holdfast.new: sync"] = function(options)
        holdfast.new { url = url, command_timeout = 3600, sync = options }:close()
      end,
      ["holdfast.new: tls"] = function(options)
        holdfast.new { url = "rediss://h", tls = options }:close()
      end,
      ["client:lock"] = function(options) client:lock("k", options) end,
      ["client:semaphore"] = function(options) client:semaphore("s", options) end,
      ["client:idempotent"] = function(options) assert(client:idempotent("i", options, call_back)) end,
      ["client:one_by_one"] = function(options) client:one_by_one(options) end,
      ["client:fence"] = function(options) client:fence("f", options) end,
      ["holdfast.idempotent_request"] = function(options) -- its options are checked first
        local _, message = pcall(holdfast.idempotent_request, options)
        assert.matches("works only under ngx_lua", message)
      end,
    }
    for what, options in pairs(OPTION_BOUNDS) do
      for name, bounds in pairs(options) do
        check(what .. " " .. name, bounds, function(value)
          calls[what] { [name] = value }
          world.cli("DEL", "i")
        end)
      end
    end
  end)

  it("are enforced for arguments: the bounds are accepted, anything beyond is refused", function()
    local pool, plain_pool = client:semaphore "pool", client:plain_semaphore "plain"
    local latch, resource = client:latch "latch", client:fence "resource"
    local held = assert(lock:acquire())
    local runs = client:one_by_one()
    local count, many = { { 1, 1000 }, { 0, 1001, 1.5, nan, "2" } },
      { { 1, 1e9 }, { 0, 1e9 + 1, 1.5, nan, huge, "2" } }
    local all = { { 0, 1e9 }, { -1, 1e9 + 1, 0.5, "2" } }
    local change = { { -1e9, 1e9 }, { -1e9 - 1, 1e9 + 1 } }
    local key = { { "x", text(1048576) }, { "", text(1048577) } }
    local part = {
      { "x", text(500000), 0, -1.5, 2 ^ 53, -2 ^ 53 },
      { "", text(500001), 2 ^ 53 + 2, -2 ^ 53 - 2, huge, -huge, nan },
    }
    -- Under Lua 5.4, spec/support/helper.lua would collect garbage a thousand times.
    local function without_hook(fn)
      return function(value)
        local hook, mask, every = debug.gethook()
        debug.sethook()
        local fine, message = pcall(fn, value)
        debug.sethook(hook, mask, every)
        if not fine then error(message, 0) end
      end
    end
    local function key_of(i) return "k" .. i end
    local function lock_of(i) return client:lock(key_of(i)) end
    local function command_of() return { "DEL", "x" } end
    local keys, commands, words = { { 1, 1024 }, { 0, 1025 } }, { { 1, 1000 }, { 0, 1001 } },
      { { 1, 3999 }, { 0, 4000 } }
    for what, case in pairs {
      ["a key"] = { key, function(value) client:lock(value) end },
      ["a resource"] = { key, function(value) held:fence_headers(value) end },
      ["a type"] = { part, function(value) runs:execute(value, 1, call_back) end },
      ["an id"] = { part, function(value) runs:execute("a", value, call_back) end },
      ["keys"] = { keys, without_hook(function(size) client:multi_lock(list(size, key_of)) end) },
      ["locks"] = { keys, without_hook(function(size) holdfast.multi_lock(list(size, lock_of)) end) },
      ["commands"] = { commands, function(size) resource:run(held, list(size, command_of)) end },
      ["words"] = { words, function(size) resource:call(held, "DEL", unpack(list(size, "x"))) end },
      ["count"] = { count, function(value) pool:try_acquire(value) end },
      ["a new total"] = { all, function(value) pool:set_permits(value) end },
      ["permits"] = { many, function(value) plain_pool:try_acquire(value) end },
      ["those given back"] = { many, function(value) plain_pool:release(value) end },
      ["a first total"] = { all, function(value) plain_pool:set(value) end },
      ["a change"] = { change, function(value) plain_pool:add(value) end },
      ["what is to come"] = { many, function(value) latch:set(value) end },
      ["what has come"] = { many, function(value) latch:count_down(value) end },
      ["an acquire's wait"] = { WAITS, function(value) held:acquire(value) end },
      ["a wait"] = { { { 0, 0.0001 }, { -0.0001, nan } }, function(value) latch:wait(value) end },
      ["a period"] = { { { 0.1, 1e9 }, { 0.09, -1, 1e10, nan, "1" } },
        function(value) client:once("job", value, call_back) end },
      ["a new lease"] = { LEASE, function(value) held:extend(value) end },
    } do
      check(what, case[1], case[2])
      world.cli("DEL", "pool", "plain", "latch", "holdfast_once:job")
    end
    held:release() -- its last lease may have ended
  end)
end)

-- These methods need only the handle, neither the server nor the holds.
local SILENT = {
  client = named [[lock mutex fair_lock read_write_lock multi_lock semaphore plain_semaphore latch
    fence one_by_one watchdog]],
  lock = named "waited key owner", permit = named "count waited key", multi_lock = named "keys",
  semaphore = named "key", plain_semaphore = named "key", latch = named "key", fence = named "key",
  term = named "token token_text key resign", -- a term that is over
  read_write_lock = named "read write key", one_by_one = {},
  watchdog = named "holds is_running stop start stats",
}

describe("every method", function()
  it("reports a loss that another call has found", function()
    client = world.client { wait = 0 }
    lock = client:lock "k"
    make_handles()
    each_method(function(kind, handle, name, method)
      world.cli("FLUSHALL")
      lose()
      local given = { handle ~= client and handle or name == "close" and world.client() or client }
      for _, argument in ipairs(ARGUMENTS[kind][name] or {}) do given[#given + 1] = argument[2] end
      if kind == "fence" and name == "call" then given[#given + 1] = "k" given[#given + 1] = 1 end
      method(unpack(given))
      assert.equal(SILENT[kind][name] and 0 or 1, losses, kind .. ":" .. name)
      handles.lost:is_held()
    end)
    client:close()
    world.cli("FLUSHALL")
  end)
end)
