-- holdfast: distributed locks on Redis. See docs/reference/api.md.

require "holdfast.native"
require "holdfast.holder" -- loaded eagerly because locks and with_lock use it: see holdfast.lazy
require "holdfast.with_lock"

local lazy = require "holdfast.lazy"
local admission = lazy "holdfast.admission"
local clients = require "holdfast.client"
local driver = require "holdfast.driver"
local idempotent_request = lazy "holdfast.idempotent_request"
local multi_lock = lazy "holdfast.multi_lock"
local options = require "holdfast.options"
local traceback = lazy "holdfast.traceback"

---@class holdfast
local holdfast = { _VERSION = require "holdfast.version" }

-- Creates a client of one server, or of several; does no I/O.
---@param url_or_opts? string | holdfast.client_options
---@param opts? holdfast.client_options after a URL
---@return holdfast.client client
function holdfast.new(url_or_opts, opts)
  options.no_colon(url_or_opts, holdfast, "holdfast.new", 2)
  return (clients.new(url_or_opts, 2, opts)) -- no tail call: the level counts this function
end

local default

-- Returns the default client, created from the environment on first use.
local function default_client(level)
  default = default or clients.new(nil, level + 1)
  return default
end

local function check_host(value)
  if type(value) == "string" and value ~= "" then return end
  return options.list(value, 64, "a host name or a list of host names", function(name)
    if type(name) ~= "string" or name == "" then return "a host name" end
  end)
end

local STATUS_OPTIONS = { client = options.client, pattern = options.text, host = check_host }

-- Like client:with_lock, on a default client created from the environment.
---@param key string
---@param opts? holdfast.with_lock_options
---@param fn holdfast.lock_callback
---@param ... any for fn
---@return any ...
---@overload fun(key: string, fn: holdfast.lock_callback, ...): ...
function holdfast.with_lock(key, opts, fn, ...)
  options.no_colon(key, holdfast, "holdfast.with_lock", 2)
  return default_client(2):with_lock(key, opts, fn, ...)
end

-- Combines several locks, even of different clients, into one that acquires all or none of them.
-- Does no I/O.
---@param locks holdfast.lock[] no two with the same key on the same server
---@param opts? { wait: number? } default 1.5 seconds per lock
---@return holdfast.multi_lock lock
function holdfast.multi_lock(locks, opts)
  options.no_colon(locks, holdfast, "holdfast.multi_lock", 2)
  options.check_argument(locks, multi_lock.check_locks, "holdfast.multi_lock", "locks", 2)
  opts = options.check_options(opts, { wait = options.wait }, "holdfast.multi_lock", 2)
  return (multi_lock.new(locks, opts.wait, "holdfast.multi_lock", 2))
end

-- Returns the traceback of the last error that with_lock passed on in this coroutine, beginning
-- where the error was raised.
---@return string? text
function holdfast.traceback()
  return traceback.last()
end

-- Under ngx_lua, in log_by_lua: releases everything that the request holds, and ends its waits.
-- Elsewhere a no-op.
function holdfast.finish()
  if driver.owner.finish then driver.owner.finish() end
end

-- Under ngx_lua, in access_by_lua: lets the first request with a key continue and responds to the
-- others. Needs holdfast.finish() in log_by_lua.
---@param opts? holdfast.idempotent_request_options
function holdfast.idempotent_request(opts)
  options.no_colon(opts, holdfast, "holdfast.idempotent_request", 2)
  opts = options.check_options(opts, idempotent_request.options, "holdfast.idempotent_request", 2)
  local problem = idempotent_request.conflict(opts)
  if problem then error("holdfast.idempotent_request: " .. problem, 2) end
  if not driver.owner.finish then error("holdfast.idempotent_request: works only under ngx_lua", 2) end
  local client = opts.client or default_client(2)
  idempotent_request.handle(client, opts, clients.defaults(client))
end

-- Under ngx_lua, in access_by_lua: rejects a request with 412 if one with a higher fencing token
-- has already been admitted for its resource.
---@param opts? holdfast.admission_options
function holdfast.fence(opts)
  options.no_colon(opts, holdfast, "holdfast.fence", 2)
  opts = options.check_options(opts, admission.options, "holdfast.fence", 2)
  if not driver.owner.finish then error("holdfast.fence: works only under ngx_lua", 2) end
  local client = opts.client or default_client(2)
  local defaults = clients.defaults(client)
  if defaults.quorum then error("holdfast.fence: fences need a single server, not a quorum", 2) end
  admission.handle(client, opts, defaults)
end

-- Under ngx_lua, in body_filter_by_lua: keeps the response, so that idempotent_request{ replay =
-- true } can replay it.
function holdfast.capture()
  if driver.owner.finish then idempotent_request.capture() end
end

-- Under ngx_lua, in content_by_lua: serves the counters of all workers from
-- `lua_shared_dict holdfast`, in the OpenMetrics or Prometheus text format.
function holdfast.metrics()
  if not driver.owner.finish then
    error("holdfast.metrics: works only under ngx_lua; elsewhere, use client:metrics()", 2)
  end
  require("holdfast.shared_metrics").serve(2)
end

-- Under ngx_lua, in content_by_lua: serves a live, read-only page that shows what is held and
-- who is waiting. Restrict access to it. In init_worker_by_lua: starts to record, so that the page
-- also covers the time before it is first opened.
---@param opts? { client: holdfast.client?, pattern: string?, host: (string | string[])? }
function holdfast.status(opts)
  options.no_colon(opts, holdfast, "holdfast.status", 2)
  opts = options.check_options(opts, STATUS_OPTIONS, "holdfast.status", 2)
  if not driver.owner.finish then error("holdfast.status: works only under ngx_lua", 2) end
  local client = opts.client or default_client(2)
  require("holdfast.status").serve(client, opts, clients.defaults(client).servers_id)
end

-- A worker of nginx may not be able to read the modules' files, and must not wait for a disk.
if rawget(_G, "ngx") then lazy.load_all() end

return holdfast
