-- One key, two ways to hold it. Needs a Redis: redis://127.0.0.1:6379, or $HOLDFAST_URL.
local holdfast = require "holdfast"
local client = holdfast.new() -- connects when it is first needed

-- A function under the lock: released whatever happens in it, kept for as long as it runs.
local function pay(lock, amount)
  return ("paid %d with fencing token %d"):format(amount, lock:token())
end
print(assert(client:with_lock("order:42", pay, 990)))

-- By hand: wait 5 seconds at most, and know why it did not work out.
local lock = client:lock("order:42")
local held, message, code = lock:acquire(5)
if held then
  print(lock)
  assert(lock:release())
else
  print(code == "busy" and "somebody else was faster" or message)
end
client:close()
