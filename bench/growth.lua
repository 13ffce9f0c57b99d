-- Whether the figures of bench/counted.lua have grown since the last release, which is the commit
-- that last changed the version. It is built in build/last_release; $HOLDFAST_BENCH_BASE is another
-- tree to compare with, in which `make CHECKED=` has run.

local counted = require "bench.counted"
local process = require "spec.support.process"
local redis = require "spec.support.redis"
local report = require "bench.report"

local BUILD = [[
  commit=$(git log -1 --format=%%h -G'^return ' -- lua/holdfast/version.lua) && [ "$commit" ] || exit 1
  tree=build/last_release/$commit
  [ -e "$tree" ] || { mkdir -p "$tree" && git archive "$commit" | tar -x -C "$tree"; } || exit 1
  unset MAKEFLAGS MAKELEVEL MAKEOVERRIDES LUA_PATH LUA_CPATH
  make -s -C "$tree" CHECKED= FLAVOURS=%s modules >&2 && cd "$tree" && pwd
]]

local function last_release()
  local given = os.getenv "HOLDFAST_BENCH_BASE"
  if given then return given end
  local pipe = io.popen(BUILD:format(process.flavour))
  local tree = pipe:read "*l"
  pipe:close()
  return tree
end

local base = last_release()
if not base then return report.note "no release to compare with" end
local server = redis.start {}
for _, name in ipairs(counted.names) do
  if counted.may_measure(name) then
    report.growth(name, counted.measure(name, server, base), counted.measure(name, server, "."))
  end
end
server:stop()
