-- The identity that a client publishes while it holds a lock or waits for one: "host pid[ name]" in
-- holdfast_client:<tenant><uuid>. The client's owners begin with that uuid.

local core = require "holdfast.core"
local locale = require "holdfast.locale"
local replies = require "holdfast.replies"

local names = {}

local UUID = "^%x+%-%x+%-%x+%-%x+%-%x+"

-- Parses what a client has published. → { host, pid, name } | nil for anything else
function names.parse(identity)
  if type(identity) ~= "string" then return nil end
  local host, pid, name = identity:match("^([^ ]+) (%d+) ?(.*)$")
  if not host then return nil end
  return { host = host, pid = locale.number(pid), name = name ~= "" and name or nil }
end

-- Returns whether the string begins with a client's uuid and a number.
function names.is_owner(value)
  return value:find(UUID .. ":%d") ~= nil
end

-- Returns the prefix of the keys with the identities of this client's tenant.
function names.prefix(client)
  return core.wire.prefixes.client .. core.client.tenant(client)
end

-- Returns the key with the identity of an owner's client, or nil if the owner has no uuid.
function names.key(client, owner)
  local uuid = owner:match(UUID)
  return uuid and names.prefix(client) .. uuid
end

-- Reads the identity of an owner or a waiter. A client of a quorum publishes it on each server.
-- `timeout`: seconds for each server's reply; nil means command_timeout.
-- → { host, pid, name } | nil if none is published
function names.read(client, owner, timeout)
  local key = names.key(client, owner)
  local nodes = key and (core.client.is_quorum(client) and core.client.nodes(client) or { 0 })
  for _, node in ipairs(nodes or {}) do
    local who = names.parse((replies.command(client, { "GET", key }, node, timeout)))
    if who then return who end
  end
end

return names
