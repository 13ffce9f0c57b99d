-- holdfast run: servers, leases and names from the settings file, the environment and the options.

local jobs = require "spec.support.jobs"
local lfs = require "lfs"

local eventually, exists, file = jobs.eventually, jobs.exists, jobs.file
local says, sees, server, start = jobs.says, jobs.sees, jobs.server, jobs.start
local stop, write = jobs.stop, jobs.write

describe("holdfast run", function()
  before_each(jobs.open)
  after_each(jobs.close)

  -- → an environment with this settings file, and its path
  local function settings(...)
    local path = write(file "holdfast.conf", ...)
    return { HOLDFAST_URL = false, HOLDFAST_CONFIG = path }, path
  end

  describe("with several keys or records", function()
    it("prefers options to the settings file, and the environment's server to the file's", function()
      local _, path = settings("# of all\nurl = redis://127.0.0.1:1\nname = night#1 # of jobs\n",
        "lease = 7\ntenant = t:\n")
      -- → the name, the tenant and the lease of a `hold` with these words
      local function held(...)
        local words = { "hold", ... }
        words[#words + 1], words.env = "k", { HOLDFAST_CONFIG = path }
        local child = start(words)
        sees(child, "^k ")
        local lease, tenant, name = server:cli("PTTL", "k"), nil, nil
        eventually(function()
          local key = server:cli("KEYS", "holdfast_client:*")[1]
          tenant = key and key:match("^holdfast_client:(.*)%x%x%x%x%x%x%x%x%-%x+%-%x+%-%x+%-%x+$")
          name = key and (server:cli("GET", key) or ""):match("^%S+ %d+ (.*)$")
          return name
        end)
        stop(child, 0)
        return { name, tenant, math.ceil(lease / 20000) }
      end
      assert.same({ "night#1", "t:", 1 }, held())
      assert.same({ "day", "u:", 4 }, held("--name", "day", "--tenant", "u:", "--lease", "80"))
    end)

    it("ignores a trailing newline, carriage return or quotes around a URL", function()
      for _, around in ipairs { "%s\n", "%s\r", "%s\r\n", '"%s"', "'%s'" } do
        local given = around:format(server:url())
        for _, words in ipairs {
          { "ping", "--url", given },
          { "ping", env = { HOLDFAST_URL = given } },
          { "ping", "--servers", given },
          { "ping", env = { HOLDFAST_SERVERS = given } },
          { "ping", env = settings("url = ", given, "\n") },
        } do says(0, "", words) end
      end
    end)

    it("names where an invalid URL comes from", function()
      local env, path = settings "url = bad\n"
      for place, words in pairs {
        ["--url"] = { "ls", "--url", "bad" },
        ["url in $HOLDFAST_URL"] = { "ls", env = { HOLDFAST_URL = "bad" } },
        ["url in " .. path] = { "ls", env = env },
      } do
        says(64, "^holdfast ls: " .. place:gsub("%p", "%%%0")
          .. ": a URL must begin with a scheme, as in redis://127%.0%.0%.1:6379", words)
      end
    end)

    it("fails if the settings file cannot be read", function()
      assert(lfs.mkdir(file "config"))
      assert(lfs.mkdir(file "config" .. "/holdfast.conf"))
      local ours = { HOLDFAST_URL = false, HOLDFAST_CONFIG = false, XDG_CONFIG_HOME = file "config" }
      local given = { HOLDFAST_URL = false, HOLDFAST_CONFIG = file "config" }
      for env, path in pairs { [ours] = "config/holdfast.conf: ", [given] = "config: " } do
        says(64, "cannot read .*" .. path:gsub("%p", "%%%0"),
          { "run", "k", "--", "touch", file "ran", env = env })
        assert.is_false(exists(file "ran"))
      end
    end)
  end)
end)
