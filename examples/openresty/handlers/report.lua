-- A report that is slow to make and valid for a while. If it is missing, one request makes it for
-- all workers; the others wait for the lock, look again and find it.

local store = ngx.shared.store

local function made()
  local again = store:get("report")
  if again then return again end
  ngx.sleep(0.2)
  local text = ('{"report": %d}'):format(store:incr("reports made", 1, 0))
  store:set("report", text, 10)
  return text
end

local text, message, code = store:get("report")
if not text then
  text, message, code = locks:with_lock("report", { wait = 5 }, made)
end
if not text then
  ngx.log(ngx.WARN, message)
  ngx.status = 503
  text = ('{"error": "%s"}'):format(code) -- a code is one plain word; a message may break the JSON
end
ngx.say(text)
