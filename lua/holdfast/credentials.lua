-- The client's option `credentials`: the user's function that returns user and password for a
-- log-in.
--
-- No message shows a user or a password. The function's error, or the reason that it returns with
-- nil, may contain the last user or password, so messages replace those strings.

local compat = require "holdfast.compat"
local core = require "holdfast.core"
local printable = require("holdfast.text").printable

local engine = core.engine

local credentials = {}

local MAX_SIZE = 511 -- bytes of a user or a password
local MAX_REASON = 120 -- bytes of the reason in a message
local ADVICE = 'return user, password, with "" for the default user'

-- client -> its fetcher, if an event loop serves the client
local fetchers = setmetatable({}, { __mode = "k" })

-- → what is wrong with the value | nil
local function problem_with(name, value)
  if type(value) ~= "string" then
    local found = value == nil and "nil" or "a " .. type(value)
    return ("%s is %s, not a string; %s"):format(name, found, ADVICE)
  end
  if #value > MAX_SIZE then return ("%s is longer than %d bytes"):format(name, MAX_SIZE) end
  if value:find("\0", 1, true) then return name .. " contains a NUL byte" end
end

local function redact(message, secrets)
  for _, secret in ipairs(secrets) do
    local first, last = message:find(secret, 1, true)
    while first and secret ~= "" do
      message = message:sub(1, first - 1) .. "…" .. message:sub(last + 1)
      first, last = message:find(secret, first, true)
    end
  end
  message = printable(message)
  if #message <= MAX_REASON then return message end
  return message:sub(1, MAX_REASON) .. "…"
end

-- Checks the results of the user's function, or its error.
-- → user, password | nil, the reason, whether a retry is pointless
local function check_result(secrets, returned, user, password)
  if not returned then
    return nil, redact("the function raised an error: " .. compat.error_text(user), secrets), false
  end
  if user == nil then
    local reason = type(password) == "string" and password or "the function returned nil"
    return nil, redact(reason, secrets), false
  end
  local problem = problem_with("the user", user) or problem_with("the password", password)
  if problem then return nil, problem, true end
  secrets[1], secrets[2] = password, user
  return user, password
end

-- Returns the function that the core calls to fetch credentials from the user's function. If calls
-- for the same server overlap, the login of the one that began last replaces those of the others.
function credentials.make_fetcher(fn)
  local secrets, calls, newest = {}, 0, {} -- secrets: the last password and user
  return function(server, refused)
    local number = calls + 1
    calls = number
    local user, password, is_final = check_result(secrets, pcall(fn, server, refused))
    if not user then return nil, password, is_final end
    local is_newest = not newest[server] or number > newest[server][1] -- any locale: numbers
    if is_newest then newest[server] = { number, user, password } end
    return newest[server][2], newest[server][3]
  end
end

-- From now on, coroutines of an event loop fetch this client's credentials.
function credentials.set_fetcher(client, fetch)
  fetchers[client] = fetch
end

-- Fetches the credentials that the core needs for this link (engine.ask_login), and passes them to
-- the core. `is_awaited()`, if not nil, returns whether the link is still waiting for them.
function credentials.log_in(client, link, is_awaited, server, refused)
  local user, password, is_final = fetchers[client](server, refused)
  if is_awaited and not is_awaited() then return end
  if user then engine.log_in(client, link, user, password)
  else engine.login_failed(client, link, password, is_final) end
end

-- Returns whether coroutines fetch this client's credentials.
function credentials.has_fetcher(client)
  return fetchers[client] ~= nil
end

return credentials
