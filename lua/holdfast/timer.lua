-- nginx's timers. ngx_lua raises an error if nginx has no free connection, which a timer needs;
-- these functions return it.

local timer = {}

local function begin(start, ...)
  local ok, begun, message = pcall(start, ...)
  if ok and begun then return true end
  if ok then return nil, message .. "; raise lua_max_pending_timers" end
  return nil, "nginx has no free connection; raise worker_connections"
end

-- Calls fn(ends, argument) in `seconds`, or earlier with `ends` true if the worker exits.
-- → true | nil, message
function timer.at(seconds, fn, argument)
  return begin(ngx.timer.at, seconds, fn, argument)
end

-- Calls fn(ends) every `seconds`. → true | nil, message
function timer.every(seconds, fn)
  return begin(ngx.timer.every, seconds, fn)
end

return timer
