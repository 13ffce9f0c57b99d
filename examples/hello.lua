-- Two ways to hold a lock. Needs a Redis at redis://127.0.0.1:6379 or $HOLDFAST_URL.
local holdfast = require "holdfast"
local client = holdfast.new() -- connects on first use

-- Run a function under the lock. The lock is renewed while it runs, and released even if it fails.
local function pay(lock, amount)
  return ("paid %d with fencing token %d"):format(amount, lock:token())
end
print(assert(client:with_lock("order:42", pay, 990)))

-- Or acquire it yourself: wait up to 5 s, and learn why if it fails.
local lock = client:lock("order:42")
local held, message, code = lock:acquire(5)
if held then
  print(lock)
  assert(lock:release())
else
  print(code == "busy" and "another client holds it" or message)
end
client:close()
