-- The client's option `credentials`: the user's function that returns user and password for a
-- log-in.
--
-- No message shows a user or a password. An error that the function raises, or the reason that it
-- returns with nil, may quote the last ones, so messages replace those strings.

local compat = require "holdfast.compat"
local core = require "holdfast.core"
local printable = require("holdfast.text").printable

local engine = core.engine

local credentials = {}

local MAX_SIZE = 511 -- bytes of a user or a password
local MAX_REASON = 120 -- bytes of a message
local ADVICE = 'return user, password, with "" for the default user'

-- client -> its fetcher, if an event loop serves the client
local fetchers = setmetatable({}, { __mode = "k" })

-- → what is wrong with the string | nil
local function problem_with(name, text)
  if type(text) ~= "string" then
    local found = text == nil and "nil" or "a " .. type(text)
    return ("%s is %s, not a string; %s"):format(name, found, ADVICE)
  end
  if #text > MAX_SIZE then return ("%s is longer than %d bytes"):format(name, MAX_SIZE) end
  if text:find("\0", 1, true) then return name .. " contains a NUL byte" end
end

local function redact(message, last)
  for _, secret in ipairs(last) do
    local at, stop = message:find(secret, 1, true)
    while at and secret ~= "" do
      message = message:sub(1, at - 1) .. "…" .. message:sub(stop + 1)
      at, stop = message:find(secret, at, true)
    end
  end
  message = printable(message)
  if #message <= MAX_REASON then return message end
  return message:sub(1, MAX_REASON) .. "…"
end

-- Checks the results of the user's function, or its error.
-- → user, password | nil, why there are none, whether a retry is pointless
local function check_result(last, returned, user, password)
  if not returned then
    return nil, redact("the function raised an error: " .. compat.text(user), last), false
  end
  if user == nil then
    local why = type(password) == "string" and password or "the function returned nil"
    return nil, redact(why, last), false
  end
  local fault = problem_with("the user", user) or problem_with("the password", password)
  if fault then return nil, fault, true end
  last[1], last[2] = password, user
  return user, password
end

-- Returns the function through which the core calls the user's function.
function credentials.fetcher(fn)
  local last = {}
  return function(server, refused)
    return check_result(last, pcall(fn, server, refused))
  end
end

-- From now on coroutines of an event loop fetch this client's credentials.
function credentials.set_fetcher(client, fetch)
  fetchers[client] = fetch
end

-- Fetches the credentials that the core wants for this link (engine.ask_login), and passes them to
-- the core. `is_awaited()`: whether the link is still waiting for them.
function credentials.log_in(client, link, is_awaited, server, refused)
  local user, password, is_final = fetchers[client](server, refused)
  if not is_awaited() then return end
  if user then engine.log_in(client, link, user, password)
  else engine.login_failed(client, link, password, is_final) end
end

-- Returns whether coroutines fetch this client's credentials.
function credentials.has_fetcher(client)
  return fetchers[client] ~= nil
end

return credentials
