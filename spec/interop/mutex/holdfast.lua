-- One worker: counts under client:mutex. Arguments: port, name, ms between two tries (ours needs
-- none), ms inside. Prints "ready", waits for the key "start", and goes on until there is a key
-- "stop".
local holdfast = require "holdfast"
local resp = require "spec.support.resp"
local sys = require "spec.support.sys"

local port, name, inside = tonumber(arg[1]), arg[2], tonumber(arg[4]) / 1000
local client = holdfast.new(("redis://127.0.0.1:%d"):format(port))
local store = assert(resp.connect { port = port })
local mutex = client:mutex("shared", { wait = 30 })
io.stdout:setvbuf("line")
print("ready")
while not store:call("GET", "start") do sys.sleep(0.005) end
while not store:call("GET", "stop") do
  assert(mutex:acquire())
  local count = tonumber(store:call("GET", "count") or 0)
  sys.sleep(inside)
  store:call("SET", "count", count + 1)
  store:call("RPUSH", "turns", name)
  assert(mutex:release())
end
client:close()
