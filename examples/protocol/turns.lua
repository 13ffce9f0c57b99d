-- Takes turns on a lock with the client in examples/protocol. Other clients of protocol 1 may
-- compete for the same lock.
--
--   mkdir -p build/protocol && lua5.4 tools/embed.lua --sent build/protocol
--   lua5.4 examples/protocol/turns.lua redis://127.0.0.1:6379 order:42 10

local protocol = require "examples.protocol.client"

local url, key, count = arg[1], arg[2], tonumber(arg[3])
if not count then
  io.stderr:write("usage: turns.lua URL KEY COUNT [PROGRAMS]\n")
  os.exit(2)
end

local client = protocol.new(url, { programs = arg[4] or "build/protocol" })
for turn = 1, count do
  local hold = client:acquire(key, 60000)
  if hold then
    print(("turn %d token %.0f, %.1f s left"):format(turn, hold.token, hold:left() / 1000))
    hold:renew()
    if not hold:release() then print("the lock was lost before its release") end
  else
    print(("turn %d: %s was taken for a minute"):format(turn, key))
  end
end
client:close()
