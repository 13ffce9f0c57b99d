-- Which keys may stay on a server after all clients are closed.

local process = require "spec.support.process"

local leftovers = {}

local UUID = "%x+%-%x+%-%x+%-%x+%-%x+"

-- What a killed process has published of itself and its waits: nobody was there to delete it.
local function is_of_killed(server, key)
  local uuid = key:match("^holdfast_client:(" .. UUID .. ")$")
    or key:match("^holdfast_wait:(" .. UUID .. "):")
  local text = uuid and server:cli("GET", "holdfast_client:" .. uuid)
  local pid = type(text) == "string" and text:match("^%S+ (%d+)") or nil
  return pid ~= nil and process.was_killed(tonumber(pid))
end

local function ends_by_itself(server, key)
  return server:cli("PTTL", key) ~= -1
end

-- The note of a call goes by itself.
local function is_note(server, key)
  return key:find("^holdfast_call:") ~= nil and ends_by_itself(server, key)
end

-- So is a fence, unless it has no end.
local function is_fence(server, key)
  return key:find("^holdfast_fence:") ~= nil and ends_by_itself(server, key)
end

-- Fencing counters are meant to stay, and what clients of a quorum know of a server. With
-- `failed_over` the server is the heir of one where clients published themselves: those that did
-- not need it again take nothing back.
function leftovers.may_stay(server, key, failed_over)
  return key:find("^redisson_lock_token:") ~= nil or key == "holdfast_known"
    or is_note(server, key) or is_fence(server, key) or is_of_killed(server, key)
    or failed_over and key:find("^holdfast_client:") ~= nil and ends_by_itself(server, key)
end

return leftovers
