-- The identity that a client publishes while it holds or waits: "host pid[ name]" in
-- holdfast_client:<uuid>, with the uuid that its owners begin with, and its tenant before that.

local core = require "holdfast.core"
local locale = require "holdfast.locale"
local replies = require "holdfast.replies"

local names = {}

local UUID = "^%x+%-%x+%-%x+%-%x+%-%x+"

-- What a client has published. → { host, pid, name } | nil: it is something else
function names.parse(text)
  if type(text) ~= "string" then return nil end
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

-- The key with the identity of an owner's client; nil: the owner names none.
function names.key(client, owner)
  local uuid = owner:match(UUID)
  return uuid and names.prefix(client) .. uuid
end

-- Of an owner or a waiter. A client of a quorum publishes it on each server. `within`: seconds for
-- the reply of each; nil: command_timeout.
-- → { host, pid, name } | nil: it has published nothing
function names.of(client, owner, within)
  local key = names.key(client, owner)
  local nodes = key and (core.client.is_quorum(client) and core.client.nodes(client) or { 0 })
  for _, node in ipairs(nodes or {}) do
    local who = names.parse((replies.command(client, { "GET", key }, node, within)))
    if who then return who end
  end
end

return names
