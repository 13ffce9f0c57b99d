-- The HTTP headers that pass a fencing token to a service. Their values are percent-encoded.

local locale = require "holdfast.locale"

local fence_headers = {}

local TOKEN, RESOURCE, LOCK = "Fence-Token", "Fence-Resource", "Fence-Lock"
local MAX_TOKEN = 9007199254740991 -- 2^53 - 1, the highest token

local MUST_BE_ESCAPED = "[^0-9A-Za-z._~:/-]"

local function escape(value)
  return (value:gsub(MUST_BE_ESCAPED, function(char) return ("%%%02X"):format(char:byte()) end))
end

local function decode_byte(digits)
  return string.char(tonumber(digits, 16)) -- any locale: a whole number
end

-- → the unescaped value | nil if it is not properly escaped
local function unescape(value)
  local escaped_byte = "%%([0-9A-Fa-f][0-9A-Fa-f])"
  if value:gsub(escaped_byte, ""):find(MUST_BE_ESCAPED) then return nil end
  return (value:gsub(escaped_byte, decode_byte))
end

function fence_headers.make(resource, lock_key, token)
  return { [TOKEN] = ("%.0f"):format(token), [RESOURCE] = escape(resource), [LOCK] = escape(lock_key) }
end

-- `get(name)` returns a header, or a list if the header was sent several times.
-- → token, lock's key, resource or nil | nil, what is wrong | nil alone if the request has no token
function fence_headers.read(get)
  local token, lock_key, resource = get(TOKEN), get(LOCK), get(RESOURCE)
  if token == nil then return nil end
  if type(token) ~= "string" or not token:find("^[1-9]%d*$") or #token > 16 or locale.number(token) > MAX_TOKEN then
    return nil, TOKEN .. " must be a fencing token, in decimal"
  end
  if type(lock_key) ~= "string" or lock_key == "" then return nil, LOCK .. " must name the lock" end
  if resource ~= nil and type(resource) ~= "string" then return nil, RESOURCE .. " was sent more than once" end
  lock_key, resource = unescape(lock_key), resource and unescape(resource)
  if not lock_key then return nil, LOCK .. " must be escaped as in a URL" end
  if not resource and get(RESOURCE) then return nil, RESOURCE .. " must be escaped as in a URL" end
  return locale.number(token), lock_key, resource
end

return fence_headers
