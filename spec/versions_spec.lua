-- Each server that tools/servers finds on this machine: versions before Redis 5.0 are refused, all
-- others work.

local fails = require "spec.support.fails"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local rights = require "spec.support.rights"

local function found()
  local list = {}
  for line in io.popen("tools/servers list"):lines() do
    local family, version, program = line:match("^(%S+) (%S+) (.*)$")
    list[#list + 1] = { name = family .. " " .. version, version = version, program = program,
      refused = family == "redis" and tonumber(version:match("^%d+")) < 5 }
  end
  return list
end

-- A right for one command of a program is missing, on servers that know users.
local function lacks_a_right(server, url)
  local reply = server:cli("ACL", "SETUSER", "u", "on", ">p", "~*", "+@all", "-pexpire")
  if reply ~= "OK" then return assert.matches("unknown command", reply.err, 1, true) end
  local client = holdfast.new((url:gsub("//", "//u:p@", 1)))
  fails("denied", client:lock("k"):acquire(0))
  client:close()
end

-- As the page says, Redis 6.0 has no rules for channels.
local function takes_the_documented_user(server, url, version)
  local rule = { "ACL", "SETUSER" }
  for _, word in ipairs(rights.of { "lock", "mutex" }) do
    local of_channels = word == "resetchannels" or word:find("^&")
    if not (of_channels and version:find("^6%.0%.")) then rule[#rule + 1] = word end
  end
  local reply = server:cli(rule)
  if version:find("^5%.") then return assert.matches("unknown command", reply.err, 1, true) end
  assert.equal("OK", reply)
  local client = holdfast.new { url = (url:gsub("//", "//locks:secret@", 1)), prefix = "lock:" }
  local lock, mutex = client:lock("k"), client:mutex("m")
  assert(lock:acquire(0)) assert(lock:release()) assert(mutex:acquire(0))
  assert(mutex:release())
  client:close()
end

local function hands_over(client, url)
  local lock = assert(client:lock("k"):acquire(0))
  local child = process.lua {
    code = [[
      local lock = require("holdfast").new(arg[1]):lock("k")
      print(lock:acquire(20) == lock, lock:release())
    ]],
    args = { url },
  }
  assert.truthy(process.wait_until(function() return assert(lock:info()).waiters == 1 end, 20))
  assert(lock:extend(30)) assert(lock:release())
  assert.same({ "exit", 0 }, { child:wait(20) })
  assert.matches("true\ttrue", child:output())
end

describe("a server found on this machine:", function()
  local server, client

  before_each(function() server, client = nil, nil end)

  after_each(function()
    if client then client:close() end
    if server then server:stop() end
  end)

  for _, each in ipairs(found()) do
    it(each.name .. (each.refused and " is refused by name" or " works"), function()
      server = redis.start { program = each.program, tcp = true }
      client = holdfast.new(server:tcp_url())
      if each.refused then
        assert.matches(("the server is Redis %s; holdfast needs Redis 5.0 or later"):format(each.version),
          fails("server", client:lock("k"):acquire(0)), 1, true)
        return
      end
      hands_over(client, server:tcp_url())
      local mutex = assert(client:mutex("m"):acquire(0))
      assert(mutex:release())
      lacks_a_right(server, server:tcp_url())
      takes_the_documented_user(server, server:tcp_url(), each.version)
    end)
  end
end)
