-- holdfast doctor: shows what the server is, and what will hurt locks there.

local acl = require "holdfast.command.acl"
local checks = require "holdfast.command.checks"
local core = require "holdfast.core"
local exits = require "holdfast.command.exits"
local facts = require "holdfast.command.facts"
local json = require "holdfast.command.json"
local locale = require "holdfast.locale"
local options = require "holdfast.command.options"
local output = require "holdfast.command.output"
local settings = require "holdfast.command.settings"
local trial = require "holdfast.command.trial"
local subcommand = require "holdfast.command.subcommand"

local doctor = {}

doctor.usage = "holdfast doctor [options] [URL…]"
doctor.summary = "Show what the server is, and what will hurt locks there."
doctor.details = "Several URLs are the servers of a quorum. Without --try, nothing is written. What this\n"
  .. "user may not see on the server is listed as not known."
doctor.takes_several_servers = true

local function check_prefix(prefix)
  local expected = acl.check(prefix)
  if expected then return nil, expected end
  return prefix
end

doctor.options = subcommand.options(doctor, {
  { "kinds", value = "KIND,KIND", check = acl.read_kinds,
    help = "kinds of lock in use, as for `holdfast acl` (default: lock)" },
  { "prefix", value = "PREFIX", check = check_prefix,
    help = "prefix of your locks' keys (default: that of --tenant)" },
  { "lease", value = "TIME", check = options.duration, help = "the shortest lease in use (default: 30s)" },
  { "try", help = "also acquire and release a lock of each kind, on keys of its own" },
  { "json", help = "print one JSON object per check" },
}, { title = settings.options.title, settings.option "restart-guard" })
doctor.examples = {
  "holdfast doctor                                        # the configured server",
  "holdfast doctor redis://a redis://b redis://c          # a quorum",
  "holdfast doctor --tenant shop: --kinds all --try",
}

-- ---- the servers to check ----

local LEASE = 30 -- seconds, the library's default

-- Returns the data that the checks of all servers share.
local function new_set(given, config)
  local url = config.url or ""
  return {
    servers = config.servers, restart_guard = config.restart_guard, tenant = config.tenant,
    is_cluster = url:find("+cluster://", 1, true) ~= nil,
    is_sentinel = url:find("+sentinel://", 1, true) ~= nil,
    kinds = given.kinds or { acl.kinds[1] }, lease = config.lease or LEASE,
    prefix = given.prefix or config.tenant or "",
    has_prefix = (given.prefix or config.tenant) ~= nil,
  }
end

-- Creates a client for the server `url`, or for all servers in the settings if `url` is nil or
-- false.
local function new_client(config, url, set)
  local copy = {}
  for name, value in pairs(config) do copy[name] = value end
  if url then copy.url, copy.servers = url, nil end
  return settings.client(copy, { on_event = function(event)
    if event.event == "tenant_exposed" then set.exposed = true end
  end })
end

local CONNECTIONS = 3 -- number of connections; a proxy may connect each to a different server

-- Returns the number of servers that a proxy at this address connects to, or nil if there is only
-- one server.
local function count_proxied_servers(config, set)
  local ids, count, clients = {}, 0, {}
  for i = 1, CONNECTIONS do
    clients[i] = new_client(config, nil, set)
    local id = clients[i] and facts.run_id(clients[i])
    if id and not ids[id] then ids[id], count = true, count + 1 end
  end
  for _, client in ipairs(clients) do client:close() end
  return count > 1 and count or nil
end

-- ---- output ----

local STATES = { fine = "fine", hurts = "will hurt", unknown = "not known" }

local function print_json(server, name, state, text, advice)
  output.print(json.object { { "server", server.server }, { "program", server:product() }, { "role", server:role() },
    { "check", name }, { "state", state }, { "text", text }, { "advice", advice } })
end

local function print_text(_, name, state, text, advice)
  if state == "fine" then return end
  output.print(("  %s: %s: %s"):format(STATES[state], name, output.printable(text or "")))
  if advice then output.print(("    → %s"):format(advice)) end
end

local function milliseconds(value)
  return locale.decimal("%.2f", value * 1e3) .. " ms"
end

local function print_head(server)
  local trips = server.round_trips
  output.print(("%s: %s, %s; round trip %s (slowest of %d: %s)"):format(
    output.printable(server.server), server:product(), server:role(),
    milliseconds(trips[math.ceil(#trips / 2)]), #trips, milliseconds(trips[#trips])))
end

-- ---- checking ----

local Visit = {}
Visit.__index = Visit

-- Runs check(add), the check with this name, and shows its result. `server`: from facts.read
function Visit:check(server, name, check)
  local show = self.given.json and print_json or print_text
  local faults = 0
  local checked, why = server:run_check(check, function(text, advice)
    faults, self.exit = faults + 1, exits.BUSY
    show(server, name, "hurts", text, advice)
  end)
  if checked == nil or faults > 0 then return end
  show(server, name, checked and "fine" or "unknown", why)
  if checked then self.fine[#self.fine + 1] = name end
end

-- Checks one node of a client. With --try, and if `client` is given, also acquires locks on it.
function Visit:check_node(server, client)
  self.fine = {}
  if not self.given.json then print_head(server) end
  for _, check in ipairs(checks.all) do
    self:check(server, check[1], function(add) return check[2](server, add) end)
  end
  if self.given.try and client then
    self:check(server, "try", function(add) return trial.run(client, self.set, add) end)
  end
  if self.given.json or #self.fine == 0 then return end
  output.print("  fine: " .. table.concat(self.fine, ", "))
end

function Visit:set_unreachable(message, code)
  self.code, self.message = code, message
  self.exit = exits.BUSY
end

-- Checks each of the client's nodes.
function Visit:check_client(client)
  local _, message, code = client:ping() -- makes a cluster's nodes known
  local servers, unreachable = {}, {}
  for _, node in ipairs(core.client.nodes(client)) do
    local server, why = facts.read(client, node, self.set)
    if server then servers[#servers + 1] = server else unreachable[#unreachable + 1] = why end
  end
  if #servers == 0 then return self:set_unreachable(message, code) end
  self.set.unreachable = unreachable
  for i, server in ipairs(servers) do
    self.has_replied = true
    self:check_node(server, i == 1 and client)
  end
end

function Visit:check_server(config, url)
  local client, message = new_client(config, url, self.set)
  if not client then return exits.USAGE, message end
  self:check_client(client)
  client:close()
  if self.message then self.out:fail(exits.of(self.code), self.code, self.message) end
  self.message = nil
end

-- → the exit code; a message if the settings are wrong
function Visit:check_all(config)
  if not config.servers then
    local is_one = not self.set.is_cluster and not self.set.is_sentinel
    self.set.server_count = is_one and count_proxied_servers(config, self.set) or nil
  end
  for _, url in ipairs(config.servers or { false }) do
    local exit, message = self:check_server(config, url)
    if exit then return exit, message end
  end
  return self.has_replied and self.exit or exits.of(self.code)
end

function doctor.main(args)
  local given, words = options.read(doctor.options, args, 2)
  local out = output.new("holdfast doctor", given or { json = options.asks_for(args, "--json") })
  if not given then return out:fail(exits.USAGE, "usage", words) end
  if #words == 1 then given.url = words[1] end
  if #words > 1 then given.servers = table.concat(words, ",") end
  local config, message = settings.load(given)
  if not config then return out:fail(exits.USAGE, "usage", message) end
  local self = setmetatable({
    given = given, out = out, exit = exits.OK, set = new_set(given, config),
  }, Visit)
  local exit
  exit, message = self:check_all(config)
  if message then return out:fail(exit, "usage", message) end
  return exit
end

return doctor
