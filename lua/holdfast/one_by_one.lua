-- The OneByOne template: runs functions one at a time for each business type and id, first come,
-- first served.
--
-- A template is userdata that contains only settings. Its lock is a mutex on prefix .. type .. "_"
-- .. id, which also excludes programs that use SET NX on that key.

local abort = require "holdfast.abort"
local core = require "holdfast.core"
local driver = require "holdfast.driver"
local holder = require "holdfast.holder"
local locks = require "holdfast.lock"
local loss = require "holdfast.loss"
local options = require "holdfast.options"
local with_lock = require "holdfast.with_lock"
local texts = require "holdfast.text"

local meta = core.template_type
local check_argument, check_self = options.check_argument, options.check_self

local DEFAULT_WAIT, DEFAULT_LEASE = 10, 30 -- seconds

---@class holdfast.one_by_one
local OneByOne = {}

meta.__index = OneByOne
meta.__metatable = meta.__name

---@class holdfast.one_by_one_options
---@field wait? number seconds to wait in the queue; default 10; 0 or less means the default
---@field lease? number seconds that a run may take; by default, or with 0 or less, 30 and renewed by the watchdog
---@field max_hold? number seconds, 0.001 to 1e9, after which the watchdog stops renewing; default: no limit
---@field queue? boolean false tries once instead of waiting; default true
---@field max_waiters? integer 0 to 1e9: a run fails at once if this many are waiting already; default: no limit
---@field prefix? string put before every key
---@field class? string for counters and events; default: the client's
---@field on_event? fun(event: holdfast.event)
---@field interruptible? boolean a signal ends a wait
---@field async_release? boolean a run does not wait until its lock is released; default: the client's
---@field keep? number seconds, 0 to 60, for which the client keeps the lock for its next runs; default: the client's

local one_by_one = {}

one_by_one.options = locks.add_options({
  wait = options.number_or_default,
  lease = options.duration_or_default,
  queue = options.boolean,
  prefix = options.text,
}, { "max_hold", "max_waiters", "class", "on_event", "interruptible", "async_release", "keep" })

---@class holdfast.execute_options
---@field wait? number
---@field lease? number
---@field queue? boolean
---@field abort_on_loss? boolean

local execute_options = {
  wait = options.number_or_default,
  lease = options.duration_or_default,
  queue = options.boolean,
  abort_on_loss = abort.check,
}

-- Raises at `level` if max_hold is set together with a lease that is not renewed, or max_waiters
-- for a quorum.
function one_by_one.check_limits_apply(given, lease, defaults, func_name, level)
  locks.check_limits_apply(given, defaults, (lease or 0) <= 0, func_name, level + 1)
end

function one_by_one.new(client, given, defaults)
  return core.template.new { client = client, defaults = defaults, given = options.copy(given) }
end

local function first_positive(...)
  for i = 1, select("#", ...) do
    local value = select(i, ...)
    if value and value > 0 then return value end
  end
end

local function first_set(a, b, default)
  if a ~= nil then return a end
  if b ~= nil then return b end
  return default
end

local MAX_SHOWN = 60 -- bytes of a type or an id in a message

local function show_part(part)
  local text = core.wire.mask_credentials(part)
  return texts.printable(#text > MAX_SHOWN and text:sub(1, MAX_SHOWN) .. "..." or text)
end

-- Rephrases the failure for the template's caller.
local function not_acquired(biz_type, biz_id, message, code)
  local prefix = ("one_by_one: type=%s id=%s: "):format(show_part(biz_type), show_part(biz_id))
  if code ~= "busy" then return nil, prefix .. message, code end
  local holder_text = holder.extract(message)
  return nil, prefix .. "already running" .. (holder_text and ", " .. holder_text or ""), code
end

-- Returns the lock's key, without the client's prefix.
local function key_of(self, biz_type, biz_id)
  local data = core.template.data(self)
  local key = (data.given.prefix or "") .. biz_type .. "_" .. biz_id
  check_argument(data.defaults.prefix .. key, options.unreserved_key, "one_by_one:execute", "key", 3)
  return key
end

local function run(self, key, biz_type, biz_id, opts, fn, ...)
  local data = core.template.data(self)
  local given = data.given
  local lease = first_positive(opts.lease, given.lease)
  local queue = first_set(opts.queue, given.queue, true)
  local lock = locks.new(data.client, key, {
    lease = lease or DEFAULT_LEASE,
    watchdog = lease == nil,
    max_hold = given.max_hold,
    max_waiters = given.max_waiters,
    wait = queue and first_positive(opts.wait, given.wait, DEFAULT_WAIT) or 0,
    interruptible = given.interruptible,
    async_release = given.async_release,
    keep = given.keep,
    class = given.class,
    on_event = given.on_event,
  }, data.defaults, "mutex")
  if opts.abort_on_loss then driver.check_hooks(lock) end
  loss.notify()
  local acquired, message, code = with_lock.acquire(lock)
  if not acquired then return not_acquired(biz_type, biz_id, message, code) end
  return with_lock.run_held(lock, opts, fn, ...)
end

-- Calls fn(lock, ...) once no other function is running for this type and id. Releases the lock
-- even if fn raises.
---@param biz_type string | number
---@param biz_id string | number
---@param opts? holdfast.execute_options
---@param fn holdfast.lock_callback
---@param ... any for fn
---@return any ... as from client:with_lock
---@overload fun(self: holdfast.one_by_one, biz_type: string|number, biz_id: string|number, fn: holdfast.lock_callback, ...): ...
function OneByOne:execute(biz_type, biz_id, opts, fn, ...)
  check_self(self, meta, "one_by_one:execute", 2)
  check_argument(biz_type, options.name_part, "one_by_one:execute", "type", 2)
  check_argument(biz_id, options.name_part, "one_by_one:execute", "id", 2)
  biz_type, biz_id = options.part_text(biz_type), options.part_text(biz_id)
  local key = key_of(self, biz_type, biz_id)
  if options.callable(opts) == nil then
    options.not_after_function(execute_options, "one_by_one:execute", "type, id, ", 2, fn, ...)
    return run(self, key, biz_type, biz_id, {}, opts, fn, ...)
  end
  opts = options.check_options(opts, execute_options, "one_by_one:execute", 2)
  local data = core.template.data(self)
  one_by_one.check_limits_apply(data.given, first_positive(opts.lease, data.given.lease),
    data.defaults, "one_by_one:execute", 2)
  check_argument(fn, options.callable, "one_by_one:execute", "fn", 2)
  return run(self, key, biz_type, biz_id, opts, fn, ...)
end

return one_by_one
