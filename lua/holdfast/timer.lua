-- nginx's timers. ngx_lua raises an error if nginx has no free connection, which a timer needs;
-- timer.at returns it.

local timer = {}

-- Calls fn(ends, argument) in `seconds`, or earlier with `ends` true if the worker exits.
-- → true | nil, message
function timer.at(seconds, fn, argument)
  local ok, begun, message = pcall(ngx.timer.at, seconds, fn, argument)
  if ok and begun then return true end
  if ok then return nil, message .. "; raise lua_max_pending_timers" end
  return nil, "nginx has no free connection; raise worker_connections"
end

return timer
