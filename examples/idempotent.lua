-- One payment for each request, however often it is sent: a duplicate gets the first one's answer.
-- Needs a Redis at redis://127.0.0.1:6379 or $HOLDFAST_URL.
local holdfast = require "holdfast"
local client = holdfast.new()
local payments = 0

local function pay(amount)
  payments = payments + 1
  return { paid = amount, number = payments }
end

-- The key names the request and the fingerprint its content; the answer is kept for a minute.
local function handle(request)
  local options = { expire = 60, replay = true, wait = 5, fingerprint = tostring(request.amount) }
  return client:idempotent("payment:" .. request.id, options, pay, request.amount)
end

local id = ("%d-%d"):format(os.time(), math.random(1e6))
print("first", handle { id = id, amount = 990 }.number)
print("again", handle { id = id, amount = 990 }.number)

local _, message, code = handle { id = id, amount = 5 }
print(code, message)
print("payments made", payments)
client:close()
