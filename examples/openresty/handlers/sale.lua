-- Sells one item while there is stock. Without the lock, two requests could read the same stock and
-- sell one item twice.

local store = ngx.shared.store

local sold, message, code = locks:with_lock("sale", { wait = 5 }, function()
  local stock = store:get("stock") or 0
  if stock == 0 then return false end
  ngx.sleep(0.001)
  store:set("stock", stock - 1)
  store:incr("sold", 1, 0)
  return true
end)

if sold == nil then
  ngx.log(ngx.WARN, message)
  ngx.status = code == "busy" and 429 or 503
  ngx.header["Retry-After"] = 1
  -- a code is one plain word; a message may break the JSON
  return ngx.say(('{"error": "%s"}'):format(code))
end
ngx.say(sold and '{"sold": true}' or '{"sold": false}')
