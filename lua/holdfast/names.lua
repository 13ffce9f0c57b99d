-- The identity that a client publishes while it holds or waits: "host pid[ name]" in
-- holdfast_client:<uuid>, with the uuid that its owners begin with, and its tenant before that.

local core = require "holdfast.core"
local locale = require "holdfast.locale"
local replies = require "holdfast.replies"

local names = {}

local UUID = "^%x+%-%x+%-%x+%-%x+%-%x+"

local function parse(text)
  local host, pid, name = text:match("^([^ ]+) (%d+) ?(.*)$")
  if not host then return nil end
  return { host = host, pid = locale.number(pid), name = name ~= "" and name or nil }
end

-- Whether it begins with a client's uuid.
function names.is_owner(text)
  return text:find(UUID .. ":%d") ~= nil
end

-- What the names of these keys begin with.
function names.prefix(client)
  return core.wire.prefixes.client .. core.client.tenant(client)
end

-- Of an owner or a waiter. A client of a quorum publishes it on each server. `within`: seconds for
-- the reply of each; nil: command_timeout.
-- → { host, pid, name } | nil: it has published nothing
function names.of(client, owner, within)
  local uuid = owner:match(UUID)
  local nodes = uuid and (core.client.is_quorum(client) and core.client.nodes(client) or { 0 })
  for _, node in ipairs(nodes or {}) do
    local text = replies.command(client, { "GET", names.prefix(client) .. uuid }, node, within)
    local who = type(text) == "string" and parse(text)
    if who then return who end
  end
end

return names
