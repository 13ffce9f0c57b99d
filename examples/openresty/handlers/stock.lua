-- For the demo: /stock?set=100 sets the stock; /stock reports all counters.

local store = ngx.shared.store
local wanted = tonumber(ngx.var.arg_set)
if wanted then store:set("stock", wanted) end

local function count(name)
  return store:get(name) or 0
end

ngx.say(('{"stock": %d, "sold": %d, "shipments": %d, "payments": %d, "reports": %d}'):format(
  count "stock", count "sold", count "shipments:42", count "payments", count "reports made"))
