-- The idempotent guard as an access handler: the first request with a key continues to its content;
-- this handler responds to the others.
--
-- During the first request the key is a guard, which is renewed as long as the request exists.
-- holdfast.finish() in log_by_lua turns it into a record: "D", or "R" and the response to replay.
-- It frees the key instead if the request was refused or, without `keep_on_error`, if the client
-- hung up (499) or the server failed (5xx).
--
-- A response may be meant for one user only. So unless all users share the same keys, the key on
-- the server is a digest of the request's key and its principal, the user who sends it. This also
-- keeps credentials out of key names.

local driver = require "holdfast.driver"
local locale = require "holdfast.locale"
local locks = require "holdfast.lock"
local options = require "holdfast.options"
local record = require "holdfast.record"

local DEFAULT_EXPIRE = 1 -- seconds
local DEFAULT_STATUS = 409
local DEFAULT_INFO = "duplicate request"
local MAX_RECORD_SIZE = 65536 -- bytes
local PREFIX = "idempotent:"

local idempotent_request = {}

---@class holdfast.idempotent_request_options
---@field client? holdfast.client the default client
---@field expire? number seconds for which duplicates are refused after a success; default 1
---@field key? string | fun(): string used instead of the method, URI, arguments and body
---@field header? boolean | string the header that carries the key; true means Idempotency-Key
---@field principal? false | fun(): string? who sent the request; default: the Authorization header; false: anybody
---@field vary? string[] request headers that distinguish requests; default none
---@field status? integer status of the response to a duplicate; default 409
---@field info? string body of the response to a duplicate
---@field replay? boolean respond to a duplicate with the first response, as seen by holdfast.capture(); default false
---@field delete_key? boolean free the key after a success; default false
---@field keep_on_error? boolean a 5xx or a client disconnect counts as done; default false
---@field lease? number seconds after which the key of a dead worker is free; default: the client's
---@field class? string for counters and events; default: the client's
---@field on_event? fun(event: holdfast.event)

local function header_option(value)
  if type(value) ~= "boolean" and options.key(value) then
    return "a boolean or the name of a header"
  end
end

local function principal_option(value)
  if value ~= false and options.callable(value) then return "a function or false" end
end

local function vary_option(value)
  if type(value) ~= "table" then return "a list of header names" end
  for i, name in ipairs(value) do
    local expected = options.key(name)
    if expected then return expected, ("[%d]"):format(i), locale.text(name) end
  end
end

local function status_option(value)
  local is_valid = type(value) == "number" and value >= 200 and value <= 599 and value % 1 == 0
  if not is_valid then return "an integer from 200 to 599" end
end

idempotent_request.options = {
  client = options.client,
  expire = options.duration,
  key = options.key_or_callable,
  header = header_option,
  principal = principal_option,
  vary = vary_option,
  status = status_option,
  info = options.text,
  replay = options.boolean,
  delete_key = options.boolean,
  keep_on_error = options.boolean,
  lease = options.duration,
  class = options.class,
  on_event = options.callable,
}

-- Returns what is wrong with the combination of options, or nil.
function idempotent_request.conflict(opts)
  if opts.replay and opts.key and opts.principal == nil then
    return "replay with key needs principal: either a function that returns who sent the request, or "
      .. "the value false if anybody may read the response"
  end
end

-- ---- what identifies a request ----

local function read_file(path)
  if not path then return "" end
  -- raises if the body cannot be read: if it counted as empty, different requests would look alike
  local file = assert(io.open(path, "rb"))
  local text = file:read("*a")
  file:close()
  return text
end

local function read_body()
  ngx.req.read_body()
  return ngx.req.get_body_data() or read_file(ngx.req.get_body_file())
end

local function digest(parts)
  local encoded = {}
  for i, part in ipairs(parts) do encoded[i] = #part .. ":" .. part end
  return (ngx.sha1_bin(table.concat(encoded)):gsub(".", function(byte)
    return ("%02x"):format(byte:byte())
  end))
end

-- Converts a request header to a string, which is "" only if the header is missing. Joins headers
-- with the same name.
local function header_to_string(value)
  if type(value) == "table" then return "=" .. table.concat(value, ", ") end
  return value and "=" .. locale.text(value) or ""
end

-- Adds the headers that `vary` names.
local function add_headers(opts, parts)
  local headers = ngx.req.get_headers(0)
  for _, name in ipairs(opts.vary or {}) do parts[#parts + 1] = header_to_string(headers[name]) end
  return parts
end

-- Returns a digest of the method, the URI as sent and as rewritten (nginx may pass on either), the
-- arguments, the body, and the headers that `vary` names.
local function request_fingerprint(opts)
  return digest(add_headers(opts, {
    ngx.req.get_method(), ngx.var.request_uri, ngx.var.uri, ngx.var.args or "", read_body(),
  }))
end

-- → who sent the request, "" for anybody | nil, what is missing
local function find_principal(opts)
  if opts.principal == false or opts.principal == nil and opts.key then return "" end
  local who, missing
  if opts.principal then
    who, missing = opts.principal(), "the principal function returned no name"
  else
    who, missing = ngx.req.get_headers(0)["Authorization"], "it has no Authorization header"
  end
  if type(who) == "string" and who ~= "" then return who end
  return nil, missing
end

-- → key | nil, why there is none
local function read_key_header(name)
  local value = ngx.req.get_headers(0)[name]
  if type(value) == "table" then
    return nil, ("the %s header was sent more than once"):format(name)
  elseif value == nil or value == "" then
    return nil, ("the %s header is missing; send a unique key for each request that may be "
      .. "repeated"):format(name)
  end
  return value
end

-- → key, fingerprint | nil, why there is none
local function read_given_key(opts)
  if opts.header then
    local key, missing = read_key_header(opts.header == true and "Idempotency-Key" or opts.header)
    return key, key and request_fingerprint(opts) or missing
  end
  local key = opts.key
  if type(key) ~= "string" then key = key() end
  if key == nil or key == "" then return nil, "the idempotency key for this request is missing" end
  return locale.text(key), opts.vary and digest(add_headers(opts, {})) or nil
end

-- → key, fingerprint | nil, why there is none
local function find_key(opts, who)
  if not opts.header and not opts.key then
    return (who == "" and ngx.var.remote_addr .. " " or "") .. request_fingerprint(opts)
  end
  return read_given_key(opts)
end

-- ---- responses ----

local function respond(status, text, retry_after)
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
  if code == "busy" then return respond(opts.status or DEFAULT_STATUS, opts.info or DEFAULT_INFO, 1) end
  if code == "mismatch" then return respond(422, "this key was already used for a different request") end
  if code ~= "duplicate" then
    ngx.log(ngx.ERR, message)
    return respond(503, "try again", 1)
  end
  if opts.replay and stored and replay(stored) then return end
  return respond(opts.status or DEFAULT_STATUS, opts.info or DEFAULT_INFO)
end

-- ---- the first request ----

-- Headers that apply only to one connection, one moment or one client.
local NOT_REPLAYED = {}
for name in ("connection keep-alive proxy-connection te trailer transfer-encoding upgrade content-length "
  .. "date server set-cookie set-cookie2 www-authenticate authentication-info proxy-authenticate "
  .. "proxy-authentication-info proxy-authorization"):gmatch("[^ ]+") do
  NOT_REPLAYED[name] = true
end

-- Returns whether nginx sends no body, so that the body filter never sees its end.
local function has_no_body()
  return ngx.status == 204 or ngx.status == 304 or ngx.req.get_method() == "HEAD"
end

-- Returns the response's record. A response that was cut off must not be replayed as complete.
local function make_record(guard)
  if not guard.parts or not (guard.ended or has_no_body()) then return "D" end
  local headers = {}
  for name, value in pairs(ngx.resp.get_headers(0)) do
    if not NOT_REPLAYED[locale.lower(name)] then headers[name] = value end
  end
  setmetatable(headers, nil)
  local text = record.encode(MAX_RECORD_SIZE, ngx.status, headers, table.concat(guard.parts))
  return text and "R" .. text or "D"
end

-- The statuses of refused requests, which had no effect and may succeed later.
local REFUSED = {
  [401] = true, [403] = true, [407] = true, [408] = true, [425] = true, [429] = true,
}

local function counts_as_done(opts)
  if REFUSED[ngx.status] then return false end
  return ngx.status < 499 or opts.keep_on_error == true
end

-- Releases the guard or turns it into a record, in log_by_lua.
local function end_guard(guard)
  local opts = guard.opts
  if not counts_as_done(opts) then return driver.detach(guard.lock, "release") end
  driver.detach(guard.lock, "complete", opts.delete_key and 0 or opts.expire or DEFAULT_EXPIRE,
    make_record(guard))
end

-- Returns whether this is an internal redirect: of a request that already has its guard, or to the
-- error page of a request that nginx refused before it reached this handler.
local function needs_no_guard()
  return driver.owner.has_ending(end_guard) or ngx.req.is_internal() and ngx.status >= 400
end

-- Missing authentication is a configuration error, so the log explains what to configure.
local function refuse_unknown_sender(missing)
  ngx.log(ngx.ERR, "holdfast.idempotent_request: cannot tell who sent this request: ", missing,
    "; make sure that requests are authenticated, or set principal either to a function that returns the",
    " user's name or to false if all users share the same keys")
  return respond(401, "the sender of this request is unknown")
end

-- → the acquired lock | nil after sending a response
local function acquire_guard(client, opts, defaults, who)
  local key, fingerprint_or_reason = find_key(opts, who)
  if not key then return nil, respond(400, fingerprint_or_reason) end
  local lock = locks.new(client, PREFIX .. (who == "" and key or digest { who, key }), {
    owner = ngx.var.request_id,
    lease = opts.lease,
    watchdog = true,
    wait = 0,
    fingerprint = fingerprint_or_reason,
    fencing = false,
    class = opts.class,
    on_event = opts.on_event,
  }, defaults, "guard")
  local acquired, message, code, stored = driver.lock.acquire(lock)
  if not acquired then return nil, refuse(opts, message, code, stored) end
  return lock
end

-- Returns if the request may continue; otherwise sends a response. `opts` must already have been
-- checked.
function idempotent_request.handle(client, opts, defaults)
  if needs_no_guard() then return end
  local who, missing = find_principal(opts)
  if not who then return refuse_unknown_sender(missing) end
  local lock = acquire_guard(client, opts, defaults, who)
  if not lock then return end
  -- nginx compresses after the body filter, so a Content-Encoding would not match the kept body
  if opts.replay then ngx.req.clear_header("Accept-Encoding") end
  driver.owner.at_end(end_guard,
    { lock = lock, opts = opts, parts = opts.replay and {} or nil, size = 0 })
end

-- Called in body_filter_by_lua: keeps the response body if it fits in a record.
function idempotent_request.capture()
  local guard = driver.owner.end_value(end_guard)
  if not guard or not guard.parts then return end
  local part = ngx.arg[1]
  guard.ended = guard.ended or ngx.arg[2]
  guard.size = guard.size + #part
  if guard.size > MAX_RECORD_SIZE then
    guard.parts = nil
  elseif part ~= "" then
    guard.parts[#guard.parts + 1] = part
  end
end

return idempotent_request
