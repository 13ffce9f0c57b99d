-- holdfast: distributed locks on Redis. See docs/api.md.

local client = require "holdfast.client"
local driver = require "holdfast.driver"
local idempotent_request = require "holdfast.idempotent_request"
local multi_lock = require "holdfast.multi_lock"
local options = require "holdfast.options"
local traceback = require "holdfast.traceback"

---@class holdfast
local holdfast = { _VERSION = "scm" }

-- A client of the server at `url`; does no I/O.
---@param url_or_opts? string | holdfast.client_options
---@return holdfast.client
function holdfast.new(url_or_opts)
  return (client.new(url_or_opts, 2)) -- no tail call: the level counts this function
end

local default

-- client:with_lock on a client of $HOLDFAST_URL, or of redis://127.0.0.1:6379.
---@param key string
---@param opts? holdfast.with_lock_options | fun(lock: holdfast.lock, ...): ...
---@param fn? fun(lock: holdfast.lock, ...): ...
---@return any ...
function holdfast.with_lock(key, opts, fn, ...)
  default = default or client.new(nil, 2)
  return default:with_lock(key, opts, fn, ...)
end

-- One lock over several locks, also of different clients: all or none. Does no I/O.
---@param members holdfast.lock[] no key of a server twice
---@param opts? { wait: number? } 1.5 seconds for each lock by default
---@return holdfast.multi_lock
function holdfast.multi_lock(members, opts)
  options.argument(members, multi_lock.check_members, "holdfast.multi_lock", "locks", 2)
  opts = options.table(opts, { wait = options.wait }, "holdfast.multi_lock", 2)
  return (multi_lock.new(members, opts.wait, "holdfast.multi_lock", 2))
end

-- The traceback of the last error that with_lock passed on in this coroutine, from where it was raised.
---@return string?
function holdfast.traceback()
  return traceback.last()
end

-- Under ngx_lua, in log_by_lua: lets go of what the request still holds or waits for. Elsewhere it does nothing.
function holdfast.finish()
  if driver.finish then driver.finish() end
end

-- Under ngx_lua, in access_by_lua: lets the first request with a key go on and answers the others. Needs
-- holdfast.finish() in log_by_lua.
---@param opts? holdfast.idempotent_request_options
function holdfast.idempotent_request(opts)
  opts = options.table(opts, idempotent_request.options, "holdfast.idempotent_request", 2)
  if not driver.finish then error("holdfast.idempotent_request: only under ngx_lua", 2) end
  local one = opts.client
  if not one then
    default = default or client.new(nil, 2)
    one = default
  end
  return idempotent_request.enter(one, opts, client.defaults(one))
end

-- Under ngx_lua, in body_filter_by_lua: keeps the response for the duplicates of idempotent_request{ replay = true }.
function holdfast.capture()
  if driver.finish then idempotent_request.capture() end
end

return holdfast
