-- What `holdfast run KEY -- true` costs compared to `true`, and to flock, with a server on a local
-- socket; in alternating rounds.

local process = require "spec.support.process"
local redis = require "spec.support.redis"
local report = require "bench.report"
local sys = require "spec.support.sys"

local ROUNDS, BAR = 40, 15

-- → the seconds from the start of the process to its end
local function time(words)
  local before = sys.now()
  local child = process.start(words)
  repeat
    local how, code = child:status()
    if how then
      assert(how == "exit" and code == 0, child:output())
      return sys.now() - before
    end
    sys.sleep(0.00005)
  until false
end

local function environment(server)
  return {
    LUA_PATH = process.lua_path, LUA_CPATH = process.lua_cpath,
    HOLDFAST_URL = server:url(), HOLDFAST_CONFIG = "/dev/null",
  }
end

local server = redis.start()
local lock_file = server.directory .. "/lock"
local kinds = {
  plain = function() return { "true", output = "/dev/null" } end,
  flock = function() return { "flock", lock_file, "true", output = "/dev/null" } end,
  holdfast = function()
    local words = { "lua5.4", "bin/holdfast", "run", "k", "--", "true" }
    words.env, words.output = environment(server), server.directory .. "/out"
    return words
  end,
}
local times = { plain = {}, flock = {}, holdfast = {} }
for name, words in pairs(kinds) do time(words()) times[name] = {} end
for i = 1, ROUNDS do
  for name, words in pairs(kinds) do times[name][i] = time(words()) end
end
server:stop()

local plain = report.median(times.plain)
local ours, theirs = report.median(times.holdfast) - plain, report.median(times.flock) - plain
report.row("true, ms", plain * 1e3, "%.2f")
report.row("flock over true, ms", theirs * 1e3, "%.2f")
report.row("holdfast run over true, ms", ours * 1e3, "%.2f", "<=", BAR)
report.row("ratio to flock", ours / theirs, "%.1f")
