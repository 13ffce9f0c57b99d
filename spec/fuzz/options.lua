-- Reads calls with arbitrary arguments from the bytes of an input, and makes them. See options.c.
--
-- A call ends with a result, with nil, message and a known code, or with an error that stands at
-- the caller's line and begins with the function's name. The functions of holdfast.core may raise
-- anything; they must not crash.
--
-- An input is a list of calls: a letter for the function, a letter for what it is called on, then
-- the arguments up to ")". A value is one letter and what belongs to it; a list or table ends with
-- "}".

local core = require "holdfast.core"
local holdfast = require "holdfast"

local URL = os.getenv("HOLDFAST_URL")
local HERE = "^spec/fuzz/options%.lua:%d+: "
local DEPTH, MOST, CALLS = 3, 40, 30

local CODES = {
  busy = true, unreachable = true, lost = true, not_held = true, interrupted = true,
  conflict = true, denied = true,
  duplicate = true, mismatch = true, closed = true, server = true, deadlock = true,
  timeout = true,
}

local NUMBERS = {
  0, 1, -1, 0.5, 0.001, 0.0009, 1e9, 1e10, math.huge, -math.huge, 0 / 0, math.maxinteger,
  math.mininteger, 1e300, 2^53,
  3600, 3601, 30,
}
local SIZES = { 126, 127, 128, 255, 256, 4096 }

local OPTIONS = {
  "url", "name", "lease", "wait", "prefix", "connect_timeout", "command_timeout", "grant_lease",
  "driver", "watchdog",
  "owner", "on_lost", "interruptible", "fencing", "token_ttl", "abort_on_loss", "queue", "expire",
  "info",
  "delete_key", "replay", "fingerprint", "keep_on_error", "client", "key", "kind", "fingerprint",
  "renewed", "entropy",
  "external", "servers", "mode", "restart_guard",
}

-- ---- reading ----

local Input = {}
Input.__index = Input

function Input:letter()
  local letter = self.bytes:sub(self.at, self.at)
  self.at = self.at + 1
  return letter
end

function Input:pick(list) return list[((self:letter():byte() or 48) - 48) % #list + 1] end

function Input:text()
  local stop = self.bytes:find("~", self.at, true) or #self.bytes + 1
  local text = self.bytes:sub(self.at, stop - 1)
  self.at = stop + 1
  return text
end

function Input:is_over() return self.at > #self.bytes end

-- Values up to the letter `last`, nils kept.
function Input:values(last, depth)
  local values, n = {}, 0
  while n < MOST and not self:is_over() do
    if self.bytes:sub(self.at, self.at) == last then
      self.at = self.at + 1
      break
    end
    n = n + 1
    values[n] = self:value(depth)
  end
  return values, n
end

function Input:table(depth)
  local given = {}
  for _ = 1, MOST do
    local letter = self:letter()
    if letter == "}" or letter == "" then break end
    local name = self:pick(OPTIONS)
    if letter == "?" then name = self:value(depth + 1) end
    if name ~= nil and name == name then given[name] = self:value(depth + 1) end
  end
  return given
end

-- The caller's own functions produce these values, so the caller is responsible for their errors.
function Input:odd(depth)
  local kinds = { "__index", "__pairs", "__len", "__call", "__metatable", "raises", "__tostring",
    "__eq" }
  local kind, value = self:pick(kinds), self:value(depth + 1)
  self.odd_seen = true
  if kind == "raises" then return setmetatable({}, { __index = function() error(value) end }) end
  if kind == "__metatable" then return setmetatable({}, { __metatable = value }) end
  if kind == "__index" and type(value) == "table" then
    return setmetatable({}, { __index = value })
  end
  return setmetatable({}, { [kind] = function() return value end })
end

local READ = {
  n = function() return nil end,
  t = function() return true end,
  f = function() return false end,
  ["#"] = function(self) return self:pick(NUMBERS) end,
  ["s"] = Input.text,
  ["S"] = function(self) return self:letter():rep(self:pick(SIZES)) end,
  ["F"] = function() return print end,
  ["C"] = function() return coroutine.create(print) end,
  ["I"] = function() return io.stdout end,
  ["{"] = function(self, depth) return depth < DEPTH and self:table(depth) or {} end,
  ["["] = function(self, depth)
    if depth >= DEPTH then return {} end
    local values, n = self:values("}", depth + 1)
    return { table.unpack(values, 1, n) } -- with its holes
  end,
  ["m"] = function(self, depth) return depth < DEPTH and self:odd(depth) or nil end,
}

for letter, name in pairs { c = "client", l = "lock", x = "mutex", o = "one_by_one", w = "watchdog",
    M = "multi_lock" } do
  READ[letter] = function(self) return self.objects[name] end
end

function Input:value(depth)
  local letter = self:letter()
  local read = READ[letter]
  if read then return read(self, depth or 0) end
  return letter
end

-- ---- calls ----

local function pack(...) return { n = select("#", ...), ... } end

-- A method by its name, on an object of this kind or on whatever the input says.
local function method(kind, name)
  return {
    name = kind .. ":" .. name,
    call = function(input, arguments, n)
      local object = input.objects[kind]
      local fn = object[name]
      if input.odd_self then object = input.odd_self[1] end
      local results = pack(fn(object, table.unpack(arguments, 1, n)))
      return results
    end,
  }
end

local function plain(name)
  return {
    -- it is the default client's
    name = name == "with_lock" and "client:with_lock" or "holdfast." .. name,
    call = function(_, arguments, n)
      local results = pack(holdfast[name](table.unpack(arguments, 1, n)))
      return results
    end,
  }
end

local function raw(name, fn)
  return { name = name, raw = true, call = function(_, arguments, n)
    return pack(fn(table.unpack(arguments, 1, n)))
  end }
end

local API = {
  holdfast = { "new", "with_lock", "multi_lock", "traceback", "finish" },
  client = {
    "lock", "mutex", "multi_lock", "one_by_one", "idempotent", "with_lock", "stats", "ping",
    "close", "watchdog",
  },
  lock = {
    "acquire", "try_acquire", "release", "force_release", "extend", "check", "is_held", "is_locked",
    "holds",
    "remaining", "ttl", "token", "lost", "info", "key", "owner",
  },
  multi_lock = {
    "acquire", "try_acquire", "release", "extend", "check", "is_held", "remaining", "lost",
    "tokens", "keys",
  },
  one_by_one = { "execute" },
  watchdog = { "holds", "is_running", "stop", "start", "stats" },
}

local calls = {}
for _, kind in ipairs { "holdfast", "client", "lock", "multi_lock", "one_by_one", "watchdog" } do
  for _, name in ipairs(API[kind]) do
    calls[#calls + 1] = kind == "holdfast" and plain(name) or method(kind, name)
  end
end

-- Listed after the functions above, whose letters the kept inputs use. client:lead is not called:
-- it waits for the server without a limit.
local KINDS = {
  client = {
    "read_write_lock", "fair_lock", "semaphore", "latch", "plain_semaphore", "with_fair_lock",
    "with_read_lock", "with_write_lock", "deadlocks", "metrics",
  },
  read_write_lock = { "read", "write", "key" },
  semaphore = {
    "acquire", "try_acquire", "with_permit", "info", "available", "permits", "set_permits",
  },
  latch = { "set", "count_down", "count", "wait", "delete", "key" },
  plain_semaphore = {
    "acquire", "try_acquire", "release", "add", "drain", "available", "set", "delete", "key",
    "with_permit",
  },
}
for _, kind in ipairs { "client", "read_write_lock", "semaphore", "latch", "plain_semaphore" } do
  for _, name in ipairs(KINDS[kind]) do calls[#calls + 1] = method(kind, name) end
end

local raw_calls = { raw("parse_url", core.parse_url) }
for _, part in ipairs { "client", "lock", "watchdog", "template", "engine" } do
  local names = {}
  for name in pairs(core[part]) do
    if name ~= "pause" then names[#names + 1] = name end -- it waits for the given time
  end
  table.sort(names)
  for _, name in ipairs(names) do
    raw_calls[#raw_calls + 1] = raw(part .. "." .. name, core[part][name])
  end
end

-- ---- what must hold ----

local function fail(call, what) error(("%s: %s"):format(call.name, what), 0) end

local function check_failure(call, message, code)
  if type(message) ~= "string" then fail(call, "a failure without a message") end
  if not CODES[code] then fail(call, "an unknown code: " .. tostring(code)) end
  if message:find("[%c\127]") then fail(call, "a message that cannot be printed: " .. message) end
end

local function check_error(call, message)
  if type(message) ~= "string" then fail(call, "raised " .. tostring(message)) end
  local text, found = message:gsub(HERE, "")
  if found == 0 then fail(call, "raised elsewhere: " .. message) end
  if text:find("^holdfast: abort_on_loss does not work alongside a debug hook set from C") then
    return -- the harness has one, to see what is reached
  end
  if text:sub(1, #call.name + 2) ~= call.name .. ": " then
    fail(call, "raised without its name: " .. message)
  end
end

-- Every key or lock of the list has become a member.
local function check_members(call, list, multi)
  local count = 0
  for _ in pairs(list) do count = count + 1 end
  if #multi:keys() ~= count then fail(call, ("%d members of %d"):format(#multi:keys(), count)) end
end

local function is_seconds(value, least, most)
  return type(value) == "number" and value >= least and value <= most
end

-- A lock that has passed the checks must have values that the core supports.
local function check_lock(call, lock)
  local data = core.lock.data(lock)
  local owner = data.owner
  local good = is_seconds(data.lease, 0.001, 1e9) and is_seconds(data.wait, 0, math.huge)
    and (data.token_ttl == 0 or data.token_ttl == math.huge
      or is_seconds(data.token_ttl, 0.001, 1e9)) and type(data.renewed) == "boolean"
    and (owner == nil or type(owner) == "string" and #owner > 0 and #owner <= 255
    and owner ~= "mode")
    and (data.interruptible == nil or type(data.interruptible) == "boolean")
  if not good then fail(call, "took what it cannot use") end
end

local function make(input, call, arguments, n)
  local ok, results = pcall(call.call, input, arguments, n)
  if call.raw then return end
  if ok and (call.name == "client:lock" or call.name == "client:mutex") then
    check_lock(call, results[1])
  end
  if input.odd_seen then return end
  if not ok then
    check_error(call, results)
  elseif results[1] == nil and results.n > 1 then
    check_failure(call, results[2], results[3])
  elseif call.name:find("[.:]multi_lock$") then
    check_members(call, arguments[1], results[1])
  end
end

local function read_call(input)
  local letter = input:letter()
  local list = calls
  if letter == "!" then list, letter = raw_calls, input:letter() end
  local call = list[((letter:byte() or 65) - 65) % #list + 1]
  input.odd_self = nil
  if input:letter() == "?" then input.odd_self = { input:value() } end
  make(input, call, input:values(")"))
end

local function objects()
  local client = holdfast.new { url = URL, command_timeout = 0.05 } -- for which a close waits
  local lock = client:lock("k")
  return {
    client = client,
    lock = lock,
    mutex = client:mutex("m"),
    one_by_one = client:one_by_one(),
    watchdog = client:watchdog(),
    multi_lock = client:multi_lock { "a", "b" },
    read_write_lock = client:read_write_lock("rw"),
    semaphore = client:semaphore("pool", { permits = 2 }),
    latch = client:latch("gate"),
    plain_semaphore = client:plain_semaphore("plain"),
  }
end

return function(bytes)
  local input = setmetatable({ bytes = bytes, at = 1, objects = objects() }, Input)
  local client = input.objects.client
  for _ = 1, CALLS do
    if input:is_over() then break end
    read_call(input)
  end
  client:close()
end
