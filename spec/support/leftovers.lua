-- Which keys may remain on a server after all clients are closed.

local process = require "spec.support.process"

local leftovers = {}

local UUID = "%x+%-%x+%-%x+%-%x+%-%x+"

-- Returns whether a killed process published this key about itself or its waits, and could not
-- delete it.
local function is_of_killed(server, key)
  local uuid = key:match("^holdfast_client:(" .. UUID .. ")$")
    or key:match("^holdfast_wait:(" .. UUID .. "):")
  local text = uuid and server:cli("GET", "holdfast_client:" .. uuid)
  local pid = type(text) == "string" and text:match("^%S+ (%d+)") or nil
  return pid ~= nil and process.was_killed(tonumber(pid))
end

local function ends_by_itself(server, key) return server:cli("PTTL", key) ~= -1 end

-- A call's note expires.
local function is_note(server, key)
  return key:find("^holdfast_call:") ~= nil and ends_by_itself(server, key)
end

-- A fence expires, unless its ttl is infinite.
local function is_fence(server, key)
  return key:find("^holdfast_fence:") ~= nil and ends_by_itself(server, key)
end

-- Fencing counters are meant to remain, and so is what clients of a quorum know about a server.
-- `failed_over`: the server has replaced one where clients published their identities; clients that
-- have not used it since do not delete them.
function leftovers.may_stay(server, key, failed_over)
  return key:find("^redisson_lock_token:") ~= nil or key == "holdfast_known"
    or is_note(server, key) or is_fence(server, key) or is_of_killed(server, key)
    or failed_over and key:find("^holdfast_client:") ~= nil and ends_by_itself(server, key)
end

return leftovers
