-- What may remain on a server after all clients are closed.

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

-- Returns a description of what should be gone from the server after `seconds` (10) but is not, or
-- nil. `failed_over`: see leftovers.may_stay.
function leftovers.on(server, failed_over, seconds)
  local function look()
    local leaks, litter = server:leaks(), {}
    for _, key in ipairs(leaks.keys) do
      local may_stay = leftovers.may_stay(server, key, failed_over)
      if not may_stay then litter[#litter + 1] = "key " .. key end
    end
    for _, channel in ipairs(leaks.channels) do litter[#litter + 1] = "channel " .. channel end
    if leaks.clients > 0 then litter[#litter + 1] = leaks.clients .. " connections" end
    local patterns = server:cli("PUBSUB", "NUMPAT")
    if patterns > 0 then litter[#litter + 1] = patterns .. " patterns" end
    return #litter > 0 and table.concat(litter, ", ") or nil
  end
  process.wait_until(function() return look() == nil end, seconds or 10)
  return look()
end

return leftovers
