-- Fails every test that leaves something behind: a descriptor of this process, or, on a server of
-- spec.support.redis, a channel, a queue of waiters, or a connection that no open client of this
-- process explains.
--
-- A server is checked when it is stopped or, if it is still running, after the test. Leftovers have
-- some time to disappear. A test that cannot comply calls
-- require("spec.support.leaks").excuse(reason)

local core = require "holdfast.core"
local process = require "spec.support.process"
local redis = require "spec.support.redis"

local leaks = {
  test = nil, -- the name of the running test
  patience = 10, -- seconds
}

local LINKS = 3 -- connections that a client may have to a server

local clients = setmetatable({}, { __mode = "k" })
local under_test, excused, before, found = false, nil, nil, {}

function leaks.excuse(reason) excused = assert(reason, "why?") end

-- ---- counting ----

local function descriptors()
  local count = process.descriptors()
  for server in pairs(redis.running) do
    if server.control then count = count - 1 end
  end
  return count
end

-- A hung server does not reply. Sentinels and nodes of a cluster are not checked, because they have
-- connections to each other.
local function can_answer(server)
  if server.process:status() or server.options.sentinel or server.options.cluster then
    return false
  end
  local file = io.open(("/proc/%d/stat"):format(server.pid))
  local state = file and file:read("*a"):match("%) (%a)")
  if file then file:close() end
  return state == "S" or state == "R"
end

-- Returns how many connections open clients may have to this server.
local function explained(server)
  local count = 0
  for client in pairs(clients) do
    local open = not tostring(client):find("(closed)", 1, true)
    local label = open and core.client.server(client)
    local here = label == "unix:" .. server.path
      or label == ("127.0.0.1:%d"):format(server.port or 0)
    if here then count = count + LINKS end
  end
  return count
end

local function queues(keys)
  local list = {}
  for _, key in ipairs(keys) do
    if key:find("^holdfast_queue:") then list[#list + 1] = key end
  end
  return list
end

-- Returns what is wrong on the server; nil if nothing is or it does not reply.
local function wrong_on(server)
  local ok, seen = pcall(server.leaks, server)
  if not ok then return nil end
  local open, waiting = explained(server), queues(seen.keys)
  local channels = open == 0 and seen.channels or {}
  if #waiting == 0 and #channels == 0 and seen.clients <= open then return nil end
  return ("left on the server: queues %q, channels %q, %d connections"):format(
    table.concat(waiting, " "), table.concat(channels, " "), seen.clients)
end

local function collect() collectgarbage() collectgarbage() end

-- ---- checking ----

local function settle(look)
  if not look() then return end
  collect()
  process.wait_until(function() return not look() end, leaks.patience)
  found[#found + 1] = look()
end

local function look_at(server)
  if excused or not can_answer(server) then return end
  settle(function() return wrong_on(server) end)
end

function leaks.begin_test()
  collect()
  under_test, excused, found, before = true, nil, {}, descriptors()
end

function leaks.end_test()
  under_test = false
  for server in pairs(redis.running) do look_at(server) end
  if excused then return end
  settle(function()
    local now = descriptors()
    if now ~= before then
      return ("%d descriptors were open before the test, %d after"):format(before, now)
    end
  end)
  if #found > 0 then error(("%s: %s"):format(leaks.test, table.concat(found, "; ")), 0) end
end

-- From here on clients are counted.
local new = core.client.new
function core.client.new(...)
  local client, wrong = new(...)
  if client then clients[client] = true end
  return client, wrong
end

function redis.on_stop(server) if under_test then look_at(server) end end

return leaks
