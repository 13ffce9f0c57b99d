-- The idempotent guard as an access handler: the first request with a key goes on to its content,
-- others are answered here.
--
-- While the first one runs the key is a guard that lives as long as its request. holdfast.finish()
-- in log_by_lua turns it into a record, "D" or "R" and the response to be replayed; or frees it,
-- when the client hung up (499) or the server failed (5xx).

local driver = require "holdfast.driver"
local locale = require "holdfast.locale"
local locks = require "holdfast.lock"
local options = require "holdfast.options"
local record = require "holdfast.record"

local EXPIRE = 1
local STATUS = 409
local INFO = "duplicate request"
local RECORD_MAX = 65536
local PREFIX = "idempotent:"

local idempotent_request = {}

---@class holdfast.idempotent_request_options
---@field client? holdfast.client the default client
---@field expire? number seconds that a done key turns duplicates away; 1
---@field key? string | fun(): string in place of the client's address, method, URI, arguments and body
---@field header? boolean | string the key comes in this header; true: Idempotency-Key
---@field status? integer for a duplicate; 409
---@field info? string the body for a duplicate
---@field replay? boolean answer a duplicate with the first one's response, as far as holdfast.capture() saw it; false
---@field delete_key? boolean free the key after a success; false
---@field lease? number seconds after which the key of a dead worker is free; the client's
---@field class? string for counters and events; the client's
---@field on_event? fun(event: table)

local function key_option(value)
  if options.key(value) and options.callable(value) then
    return "a non-empty string or a function"
  end
end

local function header_option(value)
  if type(value) ~= "boolean" and options.key(value) then
    return "a boolean or the name of a header"
  end
end

local function status_option(value)
  local fits = type(value) == "number" and value >= 200 and value <= 599 and value % 1 == 0
  if not fits then return "an integer from 200 to 599" end
end

local function client_option(value)
  return options.kind(value, "holdfast.client")
end

idempotent_request.options = {
  client = client_option,
  expire = options.lease,
  key = key_option,
  header = header_option,
  status = status_option,
  info = options.text,
  replay = options.boolean,
  delete_key = options.boolean,
  lease = options.lease,
  class = options.class,
  on_event = options.callable,
}

-- ---- what identifies a request ----

local function read_file(path)
  if not path then return "" end
  -- taken for empty, other bodies would be the same request
  local file = assert(io.open(path, "rb"))
  local text = file:read("*a")
  file:close()
  return text
end

local function body()
  ngx.req.read_body()
  return ngx.req.get_body_data() or read_file(ngx.req.get_body_file())
end

local function sorted_arguments()
  local pairs_of = {}
  for argument in (ngx.var.args or ""):gmatch("[^&]+") do pairs_of[#pairs_of + 1] = argument end
  table.sort(pairs_of, locale.is_before)
  return table.concat(pairs_of, "&")
end

local function digest(...)
  local text = {}
  for i = 1, select("#", ...) do
    local part = select(i, ...)
    text[i] = #part .. ":" .. part
  end
  return (ngx.sha1_bin(table.concat(text)):gsub(".", function(byte)
    return ("%02x"):format(byte:byte())
  end))
end

local function print_of_request()
  return digest(ngx.req.get_method(), ngx.var.uri, sorted_arguments(), body())
end

-- → key, fingerprint; nil when the key is missing
local function identify(opts)
  if opts.header then
    local name = opts.header == true and "Idempotency-Key" or opts.header
    local value = ngx.req.get_headers()[name]
    if type(value) ~= "string" or value == "" then return nil end
    return value, print_of_request()
  end
  if type(opts.key) == "string" then return opts.key end
  if opts.key then
    local key = opts.key()
    return key ~= "" and key or nil
  end
  return ngx.var.remote_addr .. " " .. print_of_request()
end

-- ---- answers ----

local function answer(status, text, retry_after)
  ngx.status = status
  ngx.header["Content-Type"] = "text/plain"
  ngx.header["Retry-After"] = retry_after
  ngx.say(text)
  return ngx.exit(status)
end

local function replay(stored)
  local values = stored:sub(1, 1) == "R" and record.decode(stored:sub(2))
  if not values then return false end
  ngx.status = values[1]
  for name, value in pairs(values[2]) do ngx.header[name] = value end
  ngx.header["Idempotent-Replayed"] = "true"
  ngx.print(values[3])
  ngx.exit(ngx.status)
  return true
end

local function refuse(opts, message, code, stored)
  if code == "busy" then return answer(opts.status or STATUS, opts.info or INFO, 1) end
  if code == "mismatch" then return answer(422, "this key came with another request before") end
  if code ~= "duplicate" then
    ngx.log(ngx.ERR, message)
    return answer(503, "try again", 1)
  end
  if opts.replay and stored and replay(stored) then return end
  return answer(opts.status or STATUS, opts.info or INFO)
end

-- ---- the first request ----

local HOP_BY_HOP = { ["connection"] = true, ["transfer-encoding"] = true, ["content-length"] = true,
  ["date"] = true,
  ["server"] = true, ["keep-alive"] = true }

local function response_of(guard)
  if not guard.parts then return "D" end
  local headers = {}
  for name, value in pairs(ngx.resp.get_headers(0)) do
    if not HOP_BY_HOP[locale.lower(name)] then headers[name] = value end
  end
  setmetatable(headers, nil)
  local text = record.encode(RECORD_MAX, ngx.status, headers, table.concat(guard.parts))
  return text and "R" .. text or "D"
end

-- In log_by_lua.
local function complete(guard)
  local opts = guard.opts
  if ngx.status >= 499 then return driver.detach(guard.lock, "release") end
  driver.detach(guard.lock, "complete", opts.delete_key and 0 or opts.expire or EXPIRE,
    response_of(guard))
end

-- After an internal redirect the handler runs again in a request that has its guard, or it runs for
-- the error page of one that nginx has refused before it came here.
local function needs_no_guard()
  return driver.has_ending(complete) or ngx.req.is_internal() and ngx.status >= 400
end

-- `opts` are checked. Returns when the request may go on; else it is answered.
function idempotent_request.enter(client, opts, defaults)
  if needs_no_guard() then return end
  local key, fingerprint = identify(opts)
  if not key then return answer(400, "the key that makes this request idempotent is missing") end
  local lock = locks.new(client, PREFIX .. key, {
    owner = ngx.var.request_id,
    lease = opts.lease,
    watchdog = true,
    wait = 0,
    fingerprint = fingerprint,
    fencing = false,
    class = opts.class,
    on_event = opts.on_event,
  }, defaults, "guard")
  local begun, message, code, stored = driver.lock.acquire(lock)
  if not begun then return refuse(opts, message, code, stored) end
  -- nginx compresses after the body filter, so that the header would not be of the kept body
  if opts.replay then ngx.req.clear_header("Accept-Encoding") end
  driver.at_end(complete, { lock = lock, opts = opts, parts = opts.replay and {} or nil, size = 0 })
end

-- In body_filter_by_lua: keeps what goes to the client, as far as it fits in a record.
function idempotent_request.capture()
  local guard = driver.ending(complete)
  if not guard or not guard.parts then return end
  local part = ngx.arg[1]
  guard.size = guard.size + #part
  if guard.size > RECORD_MAX then
    guard.parts = nil
  elseif part ~= "" then
    guard.parts[#guard.parts + 1] = part
  end
end

return idempotent_request
