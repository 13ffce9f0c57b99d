-- nginx's timers. A timer takes one of nginx's worker_connections. If none is free, ngx_lua raises
-- an error, which timer.at returns.

local timer = {}

-- Calls fn(exiting, argument) after `seconds`, or earlier if the worker is exiting, with `exiting`
-- true. → true | nil, message
function timer.at(seconds, fn, argument)
  local ok, started, message = pcall(ngx.timer.at, seconds, fn, argument)
  if ok and started then return true end
  if ok then return nil, message .. "; raise lua_max_pending_timers" end
  return nil, "nginx has no free connection; raise worker_connections"
end

return timer
