-- Users and passwords that may change while the command is running: from the settings file, which
-- is read again, or printed by --credentials-command.
--
-- A login is { fetch = the function for the library's option `credentials`, tick(client) }. While a
-- job is running nothing may wait, so tick is called regularly: after the server has refused the
-- last login, it fetches a new one for the watchdog. It returns a message when it first fails,
-- false when it succeeds again, and nil otherwise.

local core = require "holdfast.core"
local library_servers = require "holdfast.servers"
local process = require "holdfast.process"
local texts = require "holdfast.text"

local logins = {}

local MAX_SIZE = 65536 -- bytes that a program may print
local PATIENCE = 10 -- seconds for a program
local PAUSE = 1 -- seconds between a program that has failed and the next one
local CALM = 60 -- seconds without a failure, after which the next one belongs to a new outage

-- → a function that takes a failure's message, or nil for a success, and returns tick's result
local function outages()
  local failed_at
  return function(failure)
    local before, now = failed_at, core.now()
    failed_at = failure and now
    if not failure then return before and false end
    if before and now < before + CALM then return nil end
    return failure
  end
end

-- ---- the settings file ----

-- Returns the server's name in messages, or "" if there is a single URL, whose servers share a
-- login.
local function name_of(chosen, url)
  return chosen.servers and core.parse_url(url) or ""
end

-- → name of a server → { user, password, url } | nil if a URL is wrong
local function read(chosen)
  local list = {}
  for _, url in ipairs(chosen.servers or { chosen.url }) do
    local user, password = core.login_of(url)
    local name = name_of(chosen, url)
    if not user or not name then return nil end
    list[name] = { user = user, password = password, url = library_servers.without_login(url) }
  end
  return list
end

local MOVED = "%s names other servers now; start the command again"

-- `reload()` → { url or servers } as they are in the file now | nil, message. If the file now names
-- a different server, its password is not sent to the old one. A half-written file is read again
-- for the next login. → a login | nil if a URL is wrong
function logins.of_file(path, chosen, reload)
  local last = read(chosen)
  if not last then return nil end
  local function refresh(name)
    local now, message = reload()
    if not now then return "cannot read " .. message end
    local login = (read(now) or {})[name]
    if not login or login.url ~= last[name].url then return MOVED:format(path) end
    last[name] = login
  end
  local self, report, failure = {}, outages(), nil
  function self.fetch(server, refused)
    local name = chosen.servers and server or ""
    local wrong = refresh(name)
    failure = failure or wrong
    if wrong and refused then return nil, wrong end
    return last[name].user, last[name].password
  end
  function self.tick(client)
    if not core.client.needs_login(client) then return nil end
    failure = nil
    core.client.log_in(client)
    return report(failure)
  end
  return self
end

-- ---- a program ----

local PRINTS = "it must print the user and the password, each on a line, or the password alone"

-- → user, password | nil, what is wrong with what was printed
local function parse(printed)
  local lines = {}
  for line in (texts.trimmed(printed) .. "\n"):gmatch("([^\n]*)\n") do
    lines[#lines + 1] = texts.trimmed(line)
  end
  if lines[1] == "" then return nil, "it printed nothing; " .. PRINTS end
  if #lines > 2 then return nil, ("it printed %d lines; %s"):format(#lines, PRINTS) end
  if #lines == 1 then return "", lines[1] end
  return lines[1], lines[2]
end

-- → a running program: { pid, till, parts, size } | nil, why it was not started
local function start(command)
  local pid, message = process.capture(command)
  if not pid then return nil, "cannot start it: " .. message end
  return { pid = pid, till = core.now() + PATIENCE, parts = {}, size = 0 }
end

-- → whether to read on: there was output, and not too much
local function take(run, seconds)
  local bytes = process.captured_read(seconds)
  if not bytes or bytes == "" then return false end
  run.parts[#run.parts + 1], run.size = bytes, run.size + #bytes
  return run.size <= MAX_SIZE
end

-- → why the program's output is not used | nil
local function fault(run, is_late, how, number)
  if is_late then return ("it did not end within %d s"):format(PATIENCE) end
  if run.size > MAX_SIZE then return "it printed too much" end
  if how == "signal" then return ("it was terminated by signal %d"):format(number) end
  if number ~= 0 then return ("it exited with code %d"):format(number) end
end

-- Waits up to `seconds` for the program. Its children may keep its output open after its end.
-- → nil if it is still running | user, password | false, why there are none
local function finish(run, seconds)
  take(run, seconds)
  local is_late = core.now() >= run.till
  local how, number = process.captured_end(run.pid, is_late or run.size > MAX_SIZE)
  if not how then return nil end
  while take(run, 0) do end
  process.captured_close()
  local wrong = fault(run, is_late, how, number)
  if wrong then return false, wrong end
  local user, password = parse(table.concat(run.parts))
  return user or false, password
end

local FAILED = "the credentials command failed: %s"

-- Returns a login that a shell command prints. Its output is never shown.
function logins.of_command(command)
  local run, again_at, fresh = nil, 0, nil
  local self, report = {}, outages()

  -- → like finish
  local function continue_run(seconds)
    local message
    if not run then run, message = start(command) end
    if not run then return false, message end
    local user, password = finish(run, seconds)
    if user ~= nil then run = nil end
    return user, password
  end

  function self.fetch()
    if fresh then return fresh.user, fresh.password end
    local user, password
    repeat user, password = continue_run(0.05) until user ~= nil
    if user then return user, password end
    return nil, FAILED:format(password)
  end

  function self.tick(client)
    if not run and (core.now() < again_at or not core.client.needs_login(client)) then return end
    local user, password = continue_run(0)
    if user == nil then return end
    if not user then
      again_at = core.now() + PAUSE
      return report(FAILED:format(password))
    end
    if core.client.needs_login(client) then
      fresh = { user = user, password = password } -- for all servers that refused the last one
      core.client.log_in(client)
      fresh = nil
    end
    return report(nil)
  end

  return self
end

return logins
