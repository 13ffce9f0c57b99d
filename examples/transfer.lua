-- Two accounts under one multi-lock: nobody sees money in neither account or in both, and two
-- transfers in opposite directions cannot deadlock.
-- Needs a Redis at redis://127.0.0.1:6379 or $HOLDFAST_URL.
local holdfast = require "holdfast"
local client = holdfast.new()
local accounts = { anna = 100, bert = 20 }

local function transfer(from, to, amount)
  local both = client:multi_lock({ "account:" .. from, "account:" .. to }, { wait = 3 })
  local held, message, code = both:acquire()
  if not held then return nil, message, code end
  local enough = accounts[from] >= amount
  if enough then
    accounts[from], accounts[to] = accounts[from] - amount, accounts[to] + amount
  end
  local tokens = both:tokens()
  assert(both:release())
  return enough, ("fencing token %d"):format(tokens["account:" .. from])
end

print(transfer("anna", "bert", 70))
print(transfer("bert", "anna", 500))
print("anna", accounts.anna, "bert", accounts.bert)
client:close()
