-- A lock on several servers, held while a majority of them holds it: any two of five may be down.
--
--   lua examples/quorum.lua redis://a redis://b redis://c redis://d redis://e
--   HOLDFAST_SERVERS=redis://a,redis://b,redis://c lua examples/quorum.lua
local holdfast = require "holdfast"

local servers = { ... }
if #servers == 0 then
  for url in (os.getenv("HOLDFAST_SERVERS") or ""):gmatch("[^,%s]+") do
    servers[#servers + 1] = url
  end
end
if #servers == 0 then
  io.stderr:write("usage: lua examples/quorum.lua URL URL URL …\n")
  os.exit(64)
end

local client = holdfast.new {
  servers = servers,
  mode = "quorum",
  lease = 30,
  -- in production: the longest lease in use
  restart_guard = tonumber(os.getenv("RESTART_GUARD")),
}
local lock = client:lock("order:42")
local held, message, code = lock:acquire(5)
if held then
  print(("held for %.1f s with fencing token %d"):format(lock:remaining(), lock:token()))
  -- ... the work; each write carries the token, and the resource refuses lower tokens
  assert(lock:release())
else
  -- "busy": a majority answered, and another client holds the lock. "no_quorum": too few servers
  -- answered, so no client can acquire the lock now.
  print(code .. ": " .. message)
end
client:close()
os.exit(held and 0 or 1)
