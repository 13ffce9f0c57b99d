-- One lock, three ways to hold it. Needs a Redis: redis://127.0.0.1:6379, or the one that $HOLDFAST_URL names.
local holdfast = require "holdfast"

local client = holdfast.new(os.getenv("HOLDFAST_URL") or "redis://127.0.0.1:6379")

-- A function under the lock: released whatever happens in it, kept as long as it runs.
local result = assert(client:with_lock("order:42", function(lock)
  return "order 42 is ours, token " .. lock:token()
end))
print(result)

-- By hand: wait at most 5 seconds, and say so when somebody else was faster.
local lock = client:lock("order:43")
local held, message, code = lock:acquire(5)
if not held then error(message .. " (" .. code .. ")") end
print(lock)
assert(lock:release())

client:close()
