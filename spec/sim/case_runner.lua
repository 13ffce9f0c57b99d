-- Runs the cases of cases.lua on the small Redis.

local Redis = require "holdfast.testing.redis"
local programs = require "spec.sim.programs"
local refused_parts = require "spec.sim.refused_parts"
local resp = require "holdfast.testing.redis.resp"
local wire = require "spec.sim.wire"

local unpack = table.unpack or unpack

local START = 1700000000000000

local case_runner = {}

-- → a value in words
local function in_words(value)
  if type(value) == "number" then return ("%.17g"):format(value) end
  if type(value) == "string" then return ("%q"):format(value) end
  if type(value) ~= "table" then return tostring(value) end
  if value.err then return "error " .. value.err end
  local parts = {}
  for i = 1, #value do parts[i] = in_words(value[i]) end
  return "{ " .. table.concat(parts, ", ") .. " }"
end

case_runner.in_words = in_words

local function is_same(one, other)
  if type(one) ~= "table" or type(other) ~= "table" then return one == other end
  if #one ~= #other then return false end
  for i = 1, #one do
    if not is_same(one[i], other[i]) then return false end
  end
  return one.err == other.err
end

-- Returns a subscriber; its received() returns the texts of all messages since the last call.
local function listener(server, command, channel)
  local replies, texts = resp.reply_parser(), {}
  local client = server:connect(function(bytes) replies:feed(bytes) end)
  client:call { command, channel }
  return {
    received = function()
      texts = {}
      for message in function() return replies:next() end do texts[#texts + 1] = message[3] end
      return texts
    end,
    close = function() client:close() end,
  }
end

-- texts: the programs by name. parts: each call is also tried with one command refused (see
-- refused_parts.lua), or each call of the program with that name. → nil | what is wrong
function case_runner.run(case, texts, parts)
  local now = START
  local server = Redis.new { now = function() return now end }
  local client = server:connect(function() end)
  local function cmd(...)
    local args = { ... }
    for i, word in ipairs(args) do
      args[i] = type(word) == "number" and ("%.0f"):format(word) or word
    end
    return client:call(args)
  end
  local c = { cmd = cmd }
  function c.raw(name, keys, ...)
    local args = { "EVAL", (texts or programs)[name], #keys }
    for _, words in ipairs { keys, { ... } } do
      for _, word in ipairs(words) do args[#args + 1] = word end
    end
    local function run() return cmd(unpack(args)) end
    local call = { name = name, keys = keys, args = { ... } }
    local broken = (parts == true or parts == name) and refused_parts.check(server, call, run)
    if broken then error(broken, 0) end
    return run()
  end
  function c.run(name, keys, ...) return wire.spelled_out(name, c.raw(name, keys, ...)) end
  function c.listen(channel, sharded)
    return listener(server, sharded and "SSUBSCRIBE" or "SUBSCRIBE", channel)
  end
  function c.watch(pattern) return listener(server, "PSUBSCRIBE", pattern) end
  function c.pass(ms) now = now + ms * 1000 end
  function c.clock(us) now = us end
  function c.refuse(...)
    server.faults = { deny = {} }
    for _, name in ipairs { ... } do server.faults.deny[name] = true end
  end
  function c.refuse_set_get() -- like a server before 6.2
    server.replaced.set = function(run, connection, args)
      for i = 4, #args do
        if args[i] == "GET" then return { err = "ERR syntax error" } end
      end
      return run(connection, args)
    end
  end
  function c.full(is_full) server.faults = { deny = {}, oom = is_full } end
  function c.same(expected, found, what)
    if is_same(expected, found) then return end
    error(("%sexpected %s, found %s"):format(what and what .. ": " or "", in_words(expected),
      in_words(found)), 2)
  end
  local ok, message = pcall(case[2], c)
  return not ok and tostring(message) or nil
end

-- first: stops at the first case that fails. parts: see run. → list of { name, what is wrong }, how
-- many cases
function case_runner.run_all(texts, first, parts)
  local failed, cases = {}, require "spec.sim.cases"
  for _, case in ipairs(cases) do
    local message = case_runner.run(case, texts, parts)
    if message then failed[#failed + 1] = { case[1], message } end
    if message and first then break end
  end
  return failed, #cases
end

return case_runner
