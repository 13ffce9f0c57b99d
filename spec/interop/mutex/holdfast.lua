-- One worker: counts under client:mutex. Arguments: port, seconds. Prints how often it got in.
local core = require "holdfast.core"
local holdfast = require "holdfast"
local resp = require "spec.support.resp"
local sys = require "spec.support.sys"

local port = tonumber(arg[1])
local client = holdfast.new(("redis://127.0.0.1:%d"):format(port))
local store = assert(resp.connect { port = port })
local mutex = client:mutex("shared", { wait = 30 })
local stop, turns = core.now() + tonumber(arg[2]), 0
while core.now() < stop do
  assert(mutex:acquire())
  local count = tonumber(store:call("GET", "count") or 0)
  sys.sleep(0.001)
  store:call("SET", "count", count + 1)
  assert(mutex:release())
  turns = turns + 1
end
client:close()
print(turns)
