-- Reads a server's data about itself, for `holdfast doctor`. Never writes.

local core = require "holdfast.core"
local driver = require "holdfast.driver"
local locale = require "holdfast.locale"
local process = require "holdfast.process"
local texts = require "holdfast.text"

local facts = {}

local Facts = {}
Facts.__index = Facts

local MAX_UNANSWERED = 2 -- maximum commands without a reply, each of which takes command_timeout

-- Sends a plain command to the node, unless the node no longer replies.
-- → the reply, which may be nil | nil, message, code
function Facts:ask(...)
  if self.unanswered >= MAX_UNANSWERED then return nil, self.last_failure, "unreachable" end
  local reply, message, code = driver.command(self.client, { ... }, self.node)
  if code == "unreachable" then self.unanswered, self.last_failure = self.unanswered + 1, message end
  return reply, message, code
end

-- Returns a server setting as a string, or nil if this user cannot read it.
function Facts:config_string(name)
  local reply = self:ask("CONFIG", "GET", name)
  if type(reply) ~= "table" then self.refused_command = "CONFIG" end
  return type(reply) == "table" and reply[2] or nil
end

-- Calls check(...). → its results; or false and the reason if it found no fault, but the server
-- does not let this user read settings or the slow log
function Facts:run_check(check, ...)
  self.refused_command = nil
  local result, why = check(...)
  if result and self.refused_command then return false, "the server does not answer " .. self.refused_command end
  return result, why
end

-- Returns a server setting as a number, or nil.
function Facts:config_number(name)
  return locale.number(self:config_string(name))
end

-- Returns a field of INFO as a number, or nil.
function Facts:info_number(name)
  return locale.number(self.info[name])
end

local function parse_info(text)
  local info = {}
  for name, value in text:gmatch("([A-Za-z0-9_-]+):([^\r\n]*)") do info[name] = value end
  return info
end

local PINGS = 20 -- number of round trips to measure

-- Measures round trips. Stops at the first PING without a reply. → a sorted list of seconds
local function measure_round_trips(self)
  local seconds = {}
  for i = 1, PINGS do
    local began = core.now()
    local _, _, code = self:ask("PING")
    seconds[i] = core.now() - began
    if code == "unreachable" then break end
  end
  table.sort(seconds, function(a, b) return a < b end) -- any locale: compares numbers
  return seconds
end

-- → the server's time and this host's time at the same moment, in seconds | nil if not known
local function read_clocks(self)
  local before = process.time()
  local reply = self:ask("TIME")
  local local_time = (before + process.time()) / 2
  if type(reply) ~= "table" then return nil end
  local seconds, microseconds = locale.number(reply[1]), locale.number(reply[2])
  return seconds and microseconds and seconds + microseconds / 1e6, local_time
end

local function store_clock_offset(self)
  local server_time, local_time = read_clocks(self)
  self.clock_ahead = server_time and server_time - local_time
  self.clock_at, self.read_at = server_time, core.now()
end

-- Returns the seconds by which the server's clock was adjusted since facts.read, or nil if not
-- known.
function Facts:clock_moved()
  local server_time = self.clock_at and read_clocks(self)
  return server_time and server_time - self.clock_at - (core.now() - self.read_at)
end

local HOUR = 3600 -- seconds
local MAX_ENTRIES = 32 -- maximum entries of the slow log to read

-- → the start time of a command in the slow log, its duration in seconds, its name | nil if
-- malformed
local function read_entry(entry)
  if type(entry) ~= "table" or type(entry[4]) ~= "table" then return nil end
  local started_at, microseconds = locale.number(entry[2]), locale.number(entry[3])
  local name = entry[4][1]
  if not started_at or not microseconds or type(name) ~= "string" then return nil end
  return started_at, microseconds / 1e6, name
end

-- → the slowest of the latest commands in the slow log, { name, seconds } | nil. Ignores commands
-- from more than an hour ago, if the server's clock is known.
function Facts:slowest()
  local entries = self:ask("SLOWLOG", "GET", MAX_ENTRIES)
  if type(entries) ~= "table" then self.refused_command = "SLOWLOG" end
  local slowest
  for _, entry in ipairs(type(entries) == "table" and entries or {}) do
    local started_at, seconds, name = read_entry(entry)
    local age = started_at and self.clock_at and self.clock_at - started_at or 0
    local is_recent = started_at and age < HOUR
    if is_recent and (not slowest or seconds > slowest.seconds) then
      slowest = { name = name, seconds = seconds }
    end
  end
  return slowest
end

-- Returns the node's address in its cluster, "host:port", or nil.
local function address_in_cluster(self)
  local nodes = self:ask("CLUSTER", "NODES")
  local address = type(nodes) == "string" and nodes:match("[0-9a-f]+ ([^@ ]+)[^ ]* myself")
  return address and address ~= "" and not address:find("^:") and address or nil
end

-- Reads the facts about one of the client's nodes. `set`: the data that all nodes share, from
-- new_set in doctor.lua
-- → facts { server = the server's name for messages, info = the fields of INFO, round_trips,
-- clock_ahead, seconds_to_certificate_expiry, set } | nil, message, code if the node does not reply
function facts.read(client, node, set)
  local self = setmetatable({ client = client, node = node, set = set, unanswered = 0 }, Facts)
  local text, message, code = self:ask("INFO")
  if code == "unreachable" then return nil, message, code end
  self.info = parse_info(type(text) == "string" and text or "")
  self.server = set.is_cluster and address_in_cluster(self) or core.client.server(client)
  self.round_trips = measure_round_trips(self)
  store_clock_offset(self)
  self.seconds_to_certificate_expiry = core.client.seconds_to_certificate_expiry(client)
  return self
end

-- → the run id of the server that the client is connected to | nil if not known
function facts.run_id(client)
  local text = driver.command(client, { "INFO", "server" }, core.client.nodes(client)[1])
  return type(text) == "string" and parse_info(text).run_id or nil
end

-- Returns the server's product and version, such as "Redis 7.0.15".
function Facts:product()
  local info = self.info
  if info.valkey_version then return "Valkey " .. info.valkey_version end
  return info.redis_version and "Redis " .. info.redis_version or "unknown version"
end

-- Returns the server's role, such as "standalone, primary of 1 replica".
function Facts:role()
  local info, replicas = self.info, self:info_number "connected_slaves" or 0
  local mode = info.redis_mode or info.server_mode or "unknown mode"
  if info.cluster_enabled == "1" then mode = "node of a cluster" end
  if info.role == "slave" then return mode .. ", replica of " .. (info.master_host or "?") end
  if replicas == 0 then return mode .. ", no replica" end
  return ("%s, primary of %s"):format(mode, texts.plural(replicas, "replica"))
end

return facts
