-- any_call.lua SEED CALLS URL OTHER_URL: calls the functions and metamethods of holdfast.core and
-- holdfast.process with random arguments. They may raise anything, but must not crash. With TRACE
-- set, prints each call before making it.

local core = require "holdfast.core"
local process = require "holdfast.process"

local seed, calls, url, other_url = tonumber(arg[1]), tonumber(arg[2]), arg[3], arg[4]
local unpack = table.unpack or unpack

-- ---- values ----

local state = seed

local function random(most)
  state = (state * 16807) % 2147483647
  return state % most + 1
end

local function pick(list) return list[random(#list)] end

local NUMBERS = {
  0, 1, 2, 3, -1, -2, 0.5, 0.001, -0.5, 25, 64, 65, 255, 256, 4096, 65535, 65536, 2 ^ 31 - 1,
  2 ^ 31, 2 ^ 32 - 1, 2 ^ 32, 2 ^ 32 + 1, 2 ^ 53, 2 ^ 53 + 1, 2 ^ 63, -2 ^ 31, -2 ^ 63, 2 ^ 64,
  1e18, 1e19, 1e300, -1e300, 1 / 0, -1 / 0, 0 / 0, math.maxinteger or 1, math.mininteger or 1,
}

local STRINGS = {
  "", "k", "other", "a\0b", "%s%n%d", "\255\254", ("x"):rep(24), ("x"):rep(255), ("y"):rep(256),
  ("z"):rep(5000), url, "redis://127.0.0.1:1", "redis+sentinel://127.0.0.1:1/m", "valkey+cluster://127.0.0.1:1", "http://h",
  "unix://" .. ("p"):rep(200), "TERM", "CHLD", "WINCH", "exit", "quorum", "shards", "one", "*", "GET", "SET", "42", "nil",
  "+OK\r\n", ":1\r\n", "*2\r\n:1\r\n$2\r\nab\r\n", "*-1\r\n", "-ERR no\r\n", "$9999999999\r\n", ("*1\r\n"):rep(99),
}

local KINDS = { "lock", "mutex", "guard", "permit", "read", "write", "fair", "latch", "plain_semaphore", "none" }

local OPERATIONS = {
  "acquire", "release", "complete", "extend", "check", "force_release", "info", "ttl", "ping", "command",
  "pause", "set", "set_count", "count_down", "count", "await", "delete", "take", "give", "drain", "fenced",
  "once",
  "acquire_all", "release_all",
}

local FIELDS = {
  "url", "servers", "mode", "names", "weights", "restart_guard", "name", "connect_timeout",
  "command_timeout", "grant_lease", "sync_replicas", "sync_timeout", "external", "uses_event_loop", "needs_approval",
  "renewer_link", "entropy", "tls", "published_name", "sentinel_user", "sentinel_password", "key", "kind", "lease", "keep",
  "renewed", "owner", "fingerprint", "interruptible", "async_release", "token_ttl", "permits",
  "initial_permits", "observer", "class", "deadlock_check", "max_hold", "max_waiters", "ca_file", "ca_path", "cert", "server_name", "verify",
}

local objects = { io.stdout }
local value

local function list()
  local made = {}
  for i = 1, random(4) do made[i] = value() end
  return made
end

local function odd(kind)
  local answer = value()
  if kind == 1 then return setmetatable({}, { __index = function() error "no" end }) end
  if kind == 2 then return setmetatable({}, { __index = function() return answer end }) end
  if kind == 3 then return setmetatable({}, { __len = function() return answer end }) end
  return setmetatable({}, { __index = function()
    for _, object in ipairs(objects) do pcall(core.client_type.__gc, object) end
    return answer
  end })
end

local function fields()
  local made = { wait = 0.001 }
  for _ = 1, random(8) do made[pick(FIELDS)] = value() end
  return made
end

local depth = 0

local VALUES = {
  function() return nil end,
  function() return random(2) == 1 end,
  function() return pick(NUMBERS) end,
  function() return pick(NUMBERS) end,
  function() return pick(STRINGS) end,
  function() return pick(STRINGS) end,
  function() return pick(OPERATIONS) end,
  function() return pick(KINDS) end,
  function() return function() end end,
  function() return coroutine.create(function() end) end,
  function() return pick(objects) end,
  function() return pick(objects) end,
  function() return pick(objects) end,
  list, fields,
  function() return odd(random(4)) end,
}

function value()
  if depth > 2 then return pick(STRINGS) end
  depth = depth + 1
  local made = pick(VALUES)()
  depth = depth - 1
  return made
end

-- ---- valid objects, which let calls pass their checks ----

local MODES = {
  { url = url }, { url = url, external = true, renewer_link = true },
  { url = url, uses_event_loop = true },
  { url = "redis+sentinel://127.0.0.1:1/m", external = true }, { url = "redis+cluster://127.0.0.1:1", external = true },
  { mode = "quorum", servers = { url, other_url } },
  { mode = "quorum", servers = { url, other_url }, external = true },
  { mode = "shards", servers = { url, other_url }, weights = { 1, 2 }, names = { false, "b" } },
}

local function client()
  local given = {
    connect_timeout = 0.05, command_timeout = 0.05, grant_lease = 1, published_name = "any",
  }
  for name, one in pairs(pick(MODES)) do given[name] = one end
  return assert(core.client.new(given))
end

local function lock(of)
  local given = fields()
  given.key, given.kind = given.key or "k", KINDS[random(#KINDS - 1)]
  return pcall(core.lock.new, of or client(), given)
end

local function add(object)
  if #objects < 40 then objects[#objects + 1] = object
  else objects[random(40)] = object end
end

local function add_good()
  local of = client()
  add(of)
  add(core.watchdog.new(of))
  for _ = 1, 3 do
    local made, one = lock(of)
    if made then add(one) end
    local begun, operation = pcall(core.lock.begin, one, pick(OPERATIONS), 0.001)
    if begun then add(operation) end
  end
  add(core.template.new {})
end

-- ---- calls ----

-- Functions that would stop this program, end others, or use a descriptor that is not its own.
local LEFT_OUT = {
  ["process.stop"] = true, ["process.open_terminal"] = true, ["process.say"] = true,
  ["process.withhold"] = true,
}
-- Calls that wait for a time given by an argument.
local WAITS = {
  ["process.wait"] = true, ["process.captured_read"] = true, ["lock.acquire"] = true, ["lock.pause"] = true,
  ["lock.await"] = true, ["lock.take"] = true, ["client.close"] = true, ["lock.begin"] = true,
}

local functions = {}

local function add_functions(prefix, from)
  for name, fn in pairs(from) do
    local full = prefix .. name
    if type(fn) == "table" and name ~= "__index" then add_functions(full .. ".", fn) end
    if type(fn) == "function" and not LEFT_OUT[full] then
      functions[#functions + 1] = { name = full, call = fn, waits = WAITS[full] }
    end
  end
end

add_functions("", core)
add_functions("process.", process)
table.sort(functions, function(a, b) return a.name < b.name end)

local function shown(argument)
  if type(argument) == "string" then return ("%q"):format(argument:sub(1, 40)) end
  return tostring(type(argument) == "userdata" and getmetatable(argument).__name or argument)
end

local function arguments(fn)
  local given, count = {}, random(6) - 1
  for i = 1, count do
    given[i] = value()
    if fn.waits and type(given[i]) == "number" and given[i] > 0.001 then given[i] = 0.001 end
  end
  -- signals go only to processes that cannot exist
  if fn.name == "process.kill" and (tonumber(given[1]) or 0) > -2 ^ 40 then given[1] = random(2) * 2 ^ 32 end
  if random(2) == 1 and count > 0 then given[1] = pick(objects) end
  return given, count
end

local function call(fn)
  local given, count = arguments(fn)
  if os.getenv "TRACE" then
    local texts = {}
    for i = 1, count do texts[i] = shown(given[i]) end
    io.stderr:write(fn.name, "(", table.concat(texts, ", "), ")\n")
  end
  local _, first = pcall(fn.call, unpack(given, 1, count))
  if type(first) == "userdata" then add(first) end
end

for _ = 1, calls do
  if random(15) == 1 then add_good() end
  if random(50) == 1 then collectgarbage() end
  call(pick(functions))
end
objects = nil
collectgarbage() collectgarbage()
io.stdout:write("all calls returned\n")
