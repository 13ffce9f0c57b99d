-- The fence of a service under nginx, as an access handler: a request whose token is lower than one
-- already admitted for its resource gets a 412. See docs/explanation/fencing.md.

local fence = require "holdfast.fence"
local fence_headers = require "holdfast.fence_headers"
local options = require "holdfast.options"

local admission = {}

---@class holdfast.admission_options
---@field client? holdfast.client the default client
---@field resource? string | fun(): string? what the request writes to; default: the header Fence-Resource
---@field ttl? number seconds for which the highest token is remembered; default 7 days

local function resource_option(value)
  if options.key(value) and options.callable(value) then
    return "a non-empty string or a function"
  end
end

admission.options = {
  client = function(value) return options.kind(value, "holdfast.client") end,
  resource = resource_option,
  ttl = options.token_ttl,
}

local function respond(status, text)
  ngx.status = status
  ngx.header["Content-Type"] = "text/plain"
  ngx.say(text)
  return ngx.exit(status)
end

-- Methods that change nothing need no token.
local SAFE = { GET = true, HEAD = true, OPTIONS = true, TRACE = true }

local function refuse(message, code)
  if code == "stale" then
    return respond(412, "stale: a request with a higher token has already been admitted")
  end
  ngx.log(ngx.ERR, message)
  if code == "conflict" then return respond(409, "the resource belongs to another lock") end
  return respond(503, "try again")
end

-- → the resource | nil if there is none, or it is not a valid key
local function resource_of(opts, named, prefix)
  local resource = opts.resource
  if resource == nil then
    resource = named
  elseif type(resource) ~= "string" then
    resource = resource()
  end
  if options.key(resource) or options.free_key(prefix .. resource) then return nil end
  return resource
end

-- `opts` must already have been checked. Returns if the request may continue; otherwise sends the
-- response.
function admission.enter(client, opts, defaults)
  if SAFE[ngx.req.get_method()] then return end
  local headers = ngx.req.get_headers(0)
  local token, lock_key_or_message, named =
    fence_headers.read(function(name) return headers[name] end)
  if not token then
    return respond(lock_key_or_message and 400 or 428,
      lock_key_or_message or "this request needs a Fence-Token header")
  end
  local resource = resource_of(opts, named, defaults.prefix)
  if not resource then return respond(400, "this request does not name a resource") end
  local checked = fence.new(client, resource, { ttl = opts.ttl }, defaults)
  local admitted, message, code = fence.admit(checked, token, lock_key_or_message)
  if not admitted then return refuse(message, code) end
end

return admission
