-- EVAL and related commands: scripts, their library, and the conversion of replies. Only one script
-- runs at a time; the variable `running_state` contains its state. All servers in the process share
-- compiled scripts, which have no state.

local arguments = require "holdfast.testing.redis.arguments"
local fail = require "holdfast.testing.redis.fail"
local lua51 = require "holdfast.testing.redis.lua51"
local sha1 = require("holdfast.core").sha1

local OK = { ok = "OK" }
local LIBRARY_MISUSE = "ERR wrong number or type of arguments"

local commands = {}
local running_state

-- Converts a reply for the script, as a copy.
local function to_lua(reply)
  if type(reply) == "number" then return reply + 0.0 end
  if type(reply) ~= "table" then return reply end
  local copy = {}
  for key, value in pairs(reply) do copy[key] = to_lua(value) end
  return copy
end

local function to_reply(value)
  local kind = type(value)
  if kind == "string" then return value end
  if kind == "number" then return lua51.truncate(value) end
  if kind ~= "table" then return value == true and 1 or false end
  -- the real server treats both values as C strings
  if type(value.err) == "string" then return { err = value.err:match("^[^%z]*") } end
  if type(value.ok) == "string" then return { ok = value.ok:match("^[^%z]*") } end
  local list = {}
  for i = 1, math.huge do
    if value[i] == nil then return list end
    list[i] = to_reply(value[i])
  end
end

local function argument_text(value)
  if type(value) == "string" then return value end
  if type(value) == "number" then return ("%.17g"):format(value) end
  return nil
end

-- → reply, which may be an error
local function perform(...)
  local args = { ... }
  if #args == 0 then
    return { err = "ERR Please specify at least one argument for this redis lib call" }
  end
  for i = 1, select("#", ...) do
    args[i] = argument_text(args[i])
    if not args[i] then
      return { err = "ERR Lua redis lib command arguments must be strings or integers" }
    end
  end
  local ok, reply = pcall(running_state.server.execute_in_script, running_state, args)
  if ok then return reply end
  running_state.fault = running_state.fault or reply
  return { err = "ERR the small Redis has failed" }
end

local redis = {}

function redis.call(...)
  local reply = to_lua(perform(...))
  if type(reply) == "table" and reply.err then error(reply, 0) end
  return reply
end

function redis.pcall(...)
  return to_lua(perform(...))
end

-- Leaves "CODE text" unchanged; prefixes a single word with the code ERR.
function redis.error_reply(...)
  local text = ...
  if select("#", ...) ~= 1 or type(text) ~= "string" then return { err = LIBRARY_MISUSE } end
  text = text:gsub("^%-", "")
  return { err = text:find(" ", 1, true) and text or "ERR " .. text }
end

function redis.status_reply(...)
  local text = ...
  if select("#", ...) ~= 1 or type(text) ~= "string" then return { err = LIBRARY_MISUSE } end
  return { ok = text }
end

function redis.sha1hex(text)
  return sha1(type(text) == "number" and ("%.14g"):format(text) or text)
end

-- KEYS and ARGV are set for each run.
local globals = lua51.globals { redis = lua51.readonly(redis), KEYS = {}, ARGV = {} }

local compiled, names = {}, {}
local prepare_source = function(source) return source end

-- From now on, compiles prepare(source) instead of each script's source; the result may call these
-- additional functions.
function commands.instrument(prepare, functions)
  prepare_source = prepare
  for name, run in pairs(functions) do rawset(globals, name, run) end
end

local function name_of(source)
  names[source] = names[source] or sha1(source)
  return names[source]
end

-- → { name =, chunk = }
local function script_of(source)
  local name = name_of(source)
  if not compiled[name] then
    local chunk, message = lua51.compile(prepare_source(source), globals)
    if not chunk then fail("ERR Error compiling script (new function): " .. message) end
    compiled[name] = { name = name, chunk = chunk }
  end
  return compiled[name]
end

local function split(args)
  local count = arguments.integer(args[3])
  if count > #args - 3 then fail("ERR Number of keys can't be greater than number of args") end
  if count < 0 then fail("ERR Number of keys can't be negative") end
  local keys, values = {}, {}
  for i = 1, count do keys[i] = args[3 + i] end
  for i = 4 + count, #args do values[#values + 1] = args[i] end
  return keys, values
end

-- Returns the state of the client that runs scripts for this client.
local function state_of(client)
  local state = client.script_state
  if not state then
    state = setmetatable({}, { __index = client })
    client.script_state = state
  end
  state.db, state.db_index, state.wrote, state.fault = client.db, client.db_index, false, nil
  return state
end

local function run(client, script, keys, values)
  globals.KEYS, globals.ARGV = keys, values
  local state = state_of(client)
  running_state = state
  local ok, value = lua51.run(script.chunk)
  running_state = nil
  if state.fault then error(state.fault, 0) end
  if ok then return to_reply(value) end
  return { err = ("%s script: %s, on @user_script:%d."):format(value.text, script.name,
    value.line) }
end

commands.EVAL = { -3, "s", function(client, args)
  local keys, values = split(args)
  local script = script_of(args[2])
  client.server.scripts[script.name] = true
  return run(client, script, keys, values)
end }

commands.EVALSHA = { -3, "s", function(client, args)
  local keys, values = split(args)
  local name = args[2]:lower()
  if not client.server.scripts[name] then fail("NOSCRIPT No matching script. Please use EVAL.") end
  return run(client, compiled[name], keys, values)
end }

local subcommands = {}

subcommands.LOAD = { 3, "s", function(client, args)
  local name = script_of(args[3]).name
  client.server.scripts[name] = true
  return name
end }

subcommands.EXISTS = { -3, "s", function(client, args)
  local list = {}
  for i = 3, #args do list[i - 2] = client.server.scripts[args[i]:lower()] and 1 or 0 end
  return list
end }

local FLUSH_MODES = { SYNC = true, ASYNC = true }

subcommands.FLUSH = { -2, "s", function(client, args)
  if #args > 3 or args[3] and not FLUSH_MODES[args[3]:upper()] then
    fail("ERR SCRIPT FLUSH only support SYNC|ASYNC option")
  end
  client.server.scripts = {}
  return OK
end }

commands.SCRIPT = { subcommands = subcommands }

return commands
