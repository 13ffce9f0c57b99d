-- holdfast run: URLs of servers from the settings file, the environment and the options.

local jobs = require "spec.support.jobs"

local file, says, server, write = jobs.file, jobs.says, jobs.server, jobs.write

describe("holdfast run", function()
  before_each(jobs.open)
  after_each(jobs.close)

  -- → an environment with this settings file, and its path
  local function settings(...)
    local path = write(file "holdfast.conf", ...)
    return { HOLDFAST_URL = false, HOLDFAST_CONFIG = path }, path
  end

  describe("with several keys or records", function()
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
  end)
end)
