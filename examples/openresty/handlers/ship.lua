-- Ships an order unless it is shipped: reads, does something slow, writes. The lock makes that one step.

local store = ngx.shared.store
local order = ngx.var.order

local shipped, message, code = locks:with_lock("order:" .. order, { wait = 5 }, function()
  if store:get("shipped:" .. order) then return false end
  ngx.sleep(0.01)
  store:incr("shipments:" .. order, 1, 0)
  store:set("shipped:" .. order, true)
  return true
end)

if shipped == nil then
  ngx.status = code == "busy" and 409 or 503
  return ngx.say(('{"error": %q}'):format(message))
end
ngx.say(('{"order": %q, "shipped_now": %s}'):format(order, tostring(shipped)))
