-- Timers of nginx. Where ngx_lua raises an error because nginx has no connection left, which its
-- timers need, these return it.

local timer = {}

local function begin(start, ...)
  local ok, begun, message = pcall(start, ...)
  if ok and begun then return true end
  if ok then return nil, message .. "; raise lua_max_pending_timers" end
  return nil, "nginx has no free connection; raise worker_connections"
end

-- Calls fn(ends, argument) in `seconds`; `ends`: the worker ends before that. → true | nil, message
function timer.at(seconds, fn, argument)
  return begin(ngx.timer.at, seconds, fn, argument)
end

-- Calls fn(ends) each time that so many seconds have passed. → true | nil, message
function timer.every(seconds, fn)
  return begin(ngx.timer.every, seconds, fn)
end

return timer
