-- An access handler that fences a service under nginx: it rejects a request with 412 if one with a
-- higher token has already been admitted for its resource. See docs/explanation/fencing.md.

local fence = require "holdfast.fence"
local fence_headers = require "holdfast.fence_headers"
local options = require "holdfast.options"

local admission = {}

---@class holdfast.admission_options
---@field client? holdfast.client the default client
---@field resource? string | fun(): string? what the request writes to; default: the header Fence-Resource
---@field ttl? number seconds for which the highest token is remembered; default 7 days

admission.options = {
  client = options.client,
  resource = options.key_or_callable,
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
local function find_resource(opts, header_resource, prefix)
  local resource = opts.resource
  if resource == nil then
    resource = header_resource
  elseif type(resource) ~= "string" then
    resource = resource()
  end
  if options.key(resource) or options.unreserved_key(prefix .. resource) then return nil end
  return resource
end

-- Returns if the request may continue; otherwise sends a response. `opts` must already have been
-- checked.
function admission.handle(client, opts, defaults)
  if SAFE[ngx.req.get_method()] then return end
  local headers = ngx.req.get_headers(0)
  local token, lock_key_or_message, header_resource =
    fence_headers.read(function(name) return headers[name] end)
  if not token then
    return respond(lock_key_or_message and 400 or 428,
      lock_key_or_message or "this request needs a Fence-Token header")
  end
  local resource = find_resource(opts, header_resource, defaults.prefix)
  if not resource then return respond(400, "this request does not name a resource") end
  local resource_fence = fence.new(client, resource, { ttl = opts.ttl }, defaults)
  local admitted, message, code = fence.admit(resource_fence, token, lock_key_or_message)
  if not admitted then return refuse(message, code) end
end

return admission
