-- The status page: who may read it, and what it sends.

local files = require "spec.support.files"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local resty = require "spec.support.resty"
local status = require "spec.support.status"

if not resty.is_there() then return end

local front, server = resty.front, resty.server
local PATIENCE, shows, start, state = status.PATIENCE, status.shows, status.start, status.state

describe("under ngx_lua", function()
  before_each(resty.open)
  after_each(resty.close)

  describe("the status page", function()
    local client

    before_each(function() client = holdfast.new { url = server:url(), name = "lua-owner" } end)
    after_each(function() client:close() end)

    it("sends JSON with the same security headers as the page", function()
      start {}
      local response = front:get("/status?json")
      for name, value in pairs { ["cache-control"] = "no-store",
        ["referrer-policy"] = "no-referrer", ["x-content-type-options"] = "nosniff",
        ["content-type"] = "application/json" } do
        assert.equal(value, response.headers[name])
      end
      assert.matches("default%-src 'none'", response.headers["content-security-policy"])
    end)

    it("answers only to the host names in its options", function()
      start { more = [[
        location = /own { content_by_lua_block {
          HOLDFAST.status { client = CLIENT, host = { "Locks.Example", "localhost" } }
        } }
        location = /one { content_by_lua_block {
          HOLDFAST.status { client = CLIENT, host = "[::1]" }
        } }
      ]] }
      for _, case in ipairs {
        { "/own", 200, "locks.example", "LOCKS.example:8080", "localhost" },
        { "/own", 421, "spec", "127.0.0.1", "locks.example.attacker.example", "example" },
        { "/one", 200, "[::1]:8080" }, { "/one", 421, "localhost" }, { "/status", 200, "anything" },
      } do
        for i = 3, #case do
          local address = "http://" .. case[i] .. case[1] .. "?json"
          assert.equal(case[2], front:get(address, { headers = { ["X-Y"] = "z" } }).status, address)
        end
      end
      assert.equal(421, front:get("/own").status)
    end)

    it("answers only GET and HEAD, and warns that access to it must be restricted", function()
      start {}
      assert.equal(405, front:begin("/status", { method = "POST", body = "x" }):finish().status)
      assert.equal(200, front:get("/status", { method = "HEAD" }).status)
      local response = front:get("/status")
      for name, value in pairs { ["cache-control"] = "no-store", ["referrer-policy"] = "no-referrer",
          ["x-content-type-options"] = "nosniff" } do
        assert.equal(value, response.headers[name])
      end
      assert.matches("^text/html", response.headers["content-type"])
      assert.matches("protect it", response.body)
      assert.is_nil(response.body:find('%s[sh]r[ce]f?="http'))
      local policy = response.headers["content-security-policy"]
      for _, name in ipairs { "css", "js" } do
        local path = "lua/holdfast/status_page/page." .. name
        assert.truthy(response.body:find(files.read(path), 1, true), path)
        local pipe = io.popen("openssl dgst -sha256 -binary " .. path .. " | openssl base64")
        assert.truthy(policy:find("-src 'sha256-" .. pipe:read("*l") .. "'", 1, true), policy)
        pipe:close()
      end
      assert.is_nil(policy:find("unsafe", 1, true))
      assert.is_nil(response.body:find("innerHTML", 1, true))
    end)

    it("needs no right to write on the server", function()
      assert.equal("OK", server:cli("ACL", "SETUSER", "viewer", "on", ">pw", "~*", "&*", "+@all", "-@write"))
      start { where = ('url = "%s"'):format((server:tcp_url():gsub("//", "//viewer:pw@"))) }
      local waiter = process.lua { args = { server:url() }, code = [[
        local client = require("holdfast").new(arg[1])
        client:lock("seen"):acquire(60)
        client:close()
      ]] }
      client:with_lock("seen", function()
        shows("seen", function(lock) return lock.waiters == 1 end)
        state "&open=seen"
      end)
      assert.same({ "exit", 0 }, { waiter:wait(PATIENCE) }, waiter:output())
      assert.same({}, server:cli("ACL", "LOG"))
    end)
  end)
end)
