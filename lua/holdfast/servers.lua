-- The client's options `servers` and `mode`: several servers, and how they work together.

local core = require "holdfast.core"
local locale = require "holdfast.locale"
local options = require "holdfast.options"
local texts = require "holdfast.text"

local MAX_SERVERS = { quorum = 32, shards = 64 }

local servers = {}

servers.mode = options.one_of("quorum", "shards")

local function check_url(value)
  if type(value) ~= "string" then return "a URL" end
end

local function check_name(value)
  if type(value) ~= "string" or value == "" or #value > 255 or value:find("\0", 1, true) then
    return "a string of 1 to 255 bytes with no NUL bytes"
  end
end

local ENTRY = "a URL or { url = …, weight = …, name = … }"
local known = { url = check_url, weight = options.whole(1, 100, "1 to 100"), name = check_name }

local function check_entry(value)
  if type(value) == "string" then return end
  if type(value) ~= "table" then return ENTRY end
  for name in pairs(value) do
    if not known[name] then return ENTRY, "", "a table with the field " .. options.shown(name) end
  end
  for name, check in pairs(known) do
    local problem = (name == "url" or value[name] ~= nil) and check(value[name])
    if problem then return problem, "." .. name, options.shown(value[name]) end
  end
end

function servers.check(value)
  return options.list(value, MAX_SERVERS.shards, "a list of 1 to 32 URLs (1 to 64 for shards)", check_entry)
end

-- Returns what is wrong with the combination of options, or nil.
function servers.check_together(given)
  local mode, list = given.mode, given.servers
  if list and given.url then return "url and servers cannot be combined" end
  if list and not mode then return 'servers need a mode, "quorum" or "shards"' end
  if mode and not list then return "mode needs servers" end
  if given.restart_guard and mode ~= "quorum" then return 'restart_guard works only with mode = "quorum"' end
  if given.sync and mode == "quorum" then return 'sync does not work with mode = "quorum"' end
  if list and #list > MAX_SERVERS[mode] then
    return ('at most %d servers for mode = "%s"'):format(MAX_SERVERS[mode], mode)
  end
  local names = {}
  for _, server in ipairs(list or {}) do
    if type(server) == "table" and mode ~= "shards" then
      return 'weight and name work only with mode = "shards"'
    end
    local name = type(server) == "table" and server.name
    if name and names[name] then return ("two servers are named %q"):format(core.wire.mask_credentials(name)) end
    if name then names[name] = true end
  end
end

-- Strips white space and quotes, which may surround a URL from a file, variable or secret.
servers.url = texts.unquote

-- Returns what is wrong with a URL's bytes, without showing the URL, or nil.
function servers.check_bytes(url)
  local position = url:find(locale.CONTROL)
  local byte = position and texts.printable(url:sub(position, position))
  if position then
    return ("byte %d of the URL is %s; a URL has no control characters"):format(position, byte)
  end
  local first_byte = url:match("^[\"'\128-\255]")
  if first_byte then return ("the URL begins with %s"):format(texts.printable(first_byte)) end
end

-- Splits a string of URLs separated by commas and spaces. An empty item between commas is an error,
-- because a server may be missing. → a list | nil, what the string must be
function servers.split(text)
  local list = {}
  text = texts.unquote(text)
  for entry in (text .. ","):gmatch("([^,]*),") do
    if not entry:find(locale.NOT_SPACE) then
      return nil, ("URLs separated by commas (number %d is empty)"):format(#list + 1)
    end
    for url in entry:gmatch(locale.NOT_SPACE .. "+") do list[#list + 1] = servers.url(url) end
  end
  return list
end

local NAMES = { "HOLDFAST_URL", "HOLDFAST_SERVERS" }
local NOT_PASSED_ON = 'holdfast: $%s is not set in the nginx workers, although nginx was started with it, so clients without a URL '
  .. 'use another server; add "env %s;" to the top of nginx.conf, outside http {}'

-- nginx removes variables from its workers' environment. If init_by_lua loads this module, they are
-- still set.
local ngx = rawget(_G, "ngx")
local initial_values = {}
for _, name in ipairs(ngx and NAMES or {}) do initial_values[name] = os.getenv(name) end

local function variable(name)
  local value = os.getenv(name)
  if not value and initial_values[name] then
    initial_values[name] = nil -- log it only once
    ngx.log(ngx.ERR, NOT_PASSED_ON:format(name, name))
  end
  return value ~= "" and value or nil
end

-- Returns the environment's settings, { url = string or nil, servers = string or nil }. An empty
-- variable counts as not set.
function servers.environment()
  return { url = variable("HOLDFAST_URL"), servers = variable("HOLDFAST_SERVERS") }
end

function servers.strip_login(url)
  return (url:gsub("^([^/]*://).*@", "%1"))
end

-- Returns the URLs, weights and names (false for none) as lists, for core.client.new.
function servers.to_lists(given)
  local lists = { urls = {}, weights = {}, names = {} }
  for i, server in ipairs(given) do
    local entry = type(server) == "table" and server or { url = server }
    lists.urls[i] = servers.url(entry.url)
    lists.weights[i], lists.names[i] = entry.weight or 1, entry.name or false
  end
  return lists
end

return servers
