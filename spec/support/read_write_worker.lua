-- A process that reads or writes under a read/write lock: URL STORE KEY NAME [option=value ...]. It
-- records each turn in the store, a separate redis-server:
--
--   crowd:history  "r+ NAME", "r- NAME" from a reader, "w+ NAME TOKEN", "w- NAME" from a writer
--   pair:x, pair:y are written by a writer one after the other; a reader that sees different values
--     increments pair:torn
--
-- role     "read", "write"; "both": writes, then reads under the same lock and continues as a reader
-- wait     seconds for each acquire
-- turns    how many                        inside   seconds of each turn
--                                          outside  seconds between two turns
-- seconds  instead of turns: how long
-- lease, grant_lease
-- holds    how many times a reader enters the lock in each turn
-- together 1: begins when the store has crowd:start
--
-- Prints "ready", "in", "failed CODE MESSAGE", "done TURNS".

local arguments = require "spec.support.arguments"
local holdfast = require "holdfast"
local process = require "spec.support.process"
local resp = require "spec.support.resp"

local url, store_path, key, name = arg[1], arg[2], arg[3], arg[4]
local options = arguments(arg, 5, { role = "read", wait = 30, turns = 1, inside = 0, outside = 0 })

io.stdout:setvbuf("line")
local store = assert(resp.connect { path = store_path })
local client = holdfast.new { url = url, grant_lease = options.grant_lease }
local lock = client:read_write_lock(key, { lease = options.lease, watchdog = true })

local function note(what, text)
  store:call("RPUSH", "crowd:history", ("%s %s%s"):format(what, name, text or ""))
end

local function read()
  note "r+"
  local x = store:call("GET", "pair:x")
  process.sleep(options.inside)
  for _ = 2, options.holds or 1 do
    assert(lock:read():acquire(options.wait))
    process.sleep(options.inside)
  end
  if store:call("GET", "pair:y") ~= x then store:call("INCR", "pair:torn") end
  note "r-"
  for _ = 2, options.holds or 1 do assert(lock:read():release()) end
end

local function write()
  local token = ("%.0f"):format(lock:write():token())
  note("w+", " " .. token)
  store:call("SET", "pair:x", token)
  process.sleep(options.inside)
  store:call("SET", "pair:y", token)
  note "w-"
end

local turns = {}

function turns.read() read() end
function turns.write() write() end

function turns.both()
  write()
  assert(lock:read():acquire(0)) assert(lock:write():release())
  read()
end

local function turn()
  local first = options.role == "read" and lock:read() or lock:write()
  local acquired, message, code = first:acquire(options.wait)
  if not acquired then
    print(("failed %s %s"):format(code, message))
    return false
  end
  print("in")
  turns[options.role]()
  local last = options.role == "write" and lock:write() or lock:read()
  local released, problem, kind = last:release()
  if not released then print(("release %s %s"):format(kind, problem)) end
  return true
end

print("ready")
while options.together == 1 and not store:call("GET", "crowd:start") do process.sleep(0.005) end
local taken, stop = 0, options.seconds and process.now() + options.seconds
for _ = 1, stop and math.huge or options.turns do
  if stop and process.now() >= stop then break end
  if turn() then taken = taken + 1 end
  if options.outside > 0 then process.sleep(options.outside) end
end
client:close()
print("done " .. taken)
