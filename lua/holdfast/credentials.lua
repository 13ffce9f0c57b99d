-- The option `credentials` of a client: a function of the user's that returns the user and the
-- password of a log-in.
--
-- No message shows what it has returned. An error that it raises may quote what it has returned
-- before, so the last texts are blotted out.

local compat = require "holdfast.compat"
local core = require "holdfast.core"
local printable = require("holdfast.text").printable

local engine = core.engine

local credentials = {}

local MOST = 511 -- bytes of a text
local MOST_REASON = 120 -- bytes of a message
local ADVICE = 'return user, password, with "" for the default user'

-- client -> what fetches for it, where an event loop serves it
local fetchers = setmetatable({}, { __mode = "k" })

-- → what is wrong with the text, nil: nothing
local function wrong(name, text)
  if type(text) ~= "string" then
    local found = text == nil and "nil" or "a " .. type(text)
    return ("%s is %s, not a string; %s"):format(name, found, ADVICE)
  end
  if #text > MOST then return ("%s is longer than %d bytes"):format(name, MOST) end
  if text:find("\0", 1, true) then return name .. " contains a NUL byte" end
end

local function blot(message, last)
  for _, secret in ipairs(last) do
    local at, till = message:find(secret, 1, true)
    while at and secret ~= "" do
      message = message:sub(1, at - 1) .. "…" .. message:sub(till + 1)
      at, till = message:find(secret, at, true)
    end
  end
  message = printable(message)
  if #message <= MOST_REASON then return message end
  return message:sub(1, MOST_REASON) .. "…"
end

-- What the function has returned, or raised.
-- → user, password | nil, why there are none, whether the function is at fault
local function judge(last, called, user, password)
  if not called then
    return nil, blot("the function raised an error: " .. compat.text(user), last), false
  end
  if user == nil then
    local why = type(password) == "string" and password or "the function returned nil"
    return nil, blot(why, last), false
  end
  local fault = wrong("the user", user) or wrong("the password", password)
  if fault then return nil, fault, true end
  last[1], last[2] = password, user
  return user, password
end

-- What asks the function of the user's, for the core.
function credentials.fetcher(fn)
  local last = {}
  return function(server, refused)
    return judge(last, pcall(fn, server, refused))
  end
end

-- From now on the coroutines of an event loop fetch for this client.
function credentials.take(client, fetch)
  fetchers[client] = fetch
end

-- Fetches for this link, for which the core was asked (engine.ask_login), and tells the core.
-- `goes_on()`: whether it still waits for that.
function credentials.log_in(client, link, goes_on, server, refused)
  local user, password, is_final = fetchers[client](server, refused)
  if not goes_on() then return end
  if user then engine.log_in(client, link, user, password)
  else engine.login_failed(client, link, password, is_final) end
end

-- Whether the client has such a function.
function credentials.has(client)
  return fetchers[client] ~= nil
end

return credentials
