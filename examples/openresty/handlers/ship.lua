-- Ships an order unless it was shipped before: reads, does something slow, writes. The lock makes
-- this atomic.

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
  ngx.log(ngx.WARN, message)
  ngx.status = code == "busy" and 409 or 503
  -- a code is one plain word; a message may break the JSON
  return ngx.say(('{"error": "%s"}'):format(code))
end
ngx.say(('{"order": "%s", "shipped_now": %s}'):format(order, tostring(shipped))) -- the order is \w+
