-- Makes calls of ngx_lua fail. Runs in an nginx worker, before holdfast is loaded.
--
-- fault{ call = name, nth = 1, lasts = false, behind = false, act = function } makes the nth call
-- of that name return act() instead of its own result, all later ones too if `lasts`. With `behind`
-- the real call runs first. fault() ends the fault. The test itself has the real calls.

local ngx = rawget(_G, "ngx")
local semaphore = require "ngx.semaphore"

local failing = { sleep = ngx.sleep, spawn = ngx.thread.spawn, now = ngx.now }
local fault

local function wrap(name, fn)
  return function(...)
    if not fault or fault.call ~= name then return fn(...) end
    fault.calls = fault.calls + 1
    local is_due = fault.calls == fault.nth or fault.lasts and fault.calls > fault.nth
    if not is_due then return fn(...) end
    if fault.behind then fn(...) end
    return fault.act()
  end
end

local function wrap_object(name, object, methods)
  local made = {}
  for _, method in ipairs(methods) do
    made[method] = wrap(name .. "." .. method, function(_, ...)
      return object[method](object, ...)
    end)
  end
  return made
end

ngx.timer.at = wrap("timer", ngx.timer.at)
ngx.thread.spawn = wrap("spawn", ngx.thread.spawn)
ngx.thread.kill = wrap("kill", ngx.thread.kill)
ngx.sleep = wrap("sleep", ngx.sleep)

local tcp = ngx.socket.tcp
ngx.socket.tcp = wrap("socket", function()
  return wrap_object("socket", tcp(), { "connect", "settimeouts", "send", "receiveany", "close" })
end)

local new = semaphore.new
semaphore.new = wrap("semaphore", function(...)
  local made, message = new(...)
  if not made then return nil, message end
  return wrap_object("semaphore", made, { "wait", "post", "count" })
end)

-- → how many calls of the last fault's name there were
function failing.fault(given)
  local calls = fault and fault.calls
  fault = given
  if given then given.calls = 0 end
  return calls
end

return failing
