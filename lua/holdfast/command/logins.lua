-- Users and passwords that may change while the command is running. They come from the settings
-- file, which is reread, or from the output of --credentials-command.
--
-- A login is { fetch = the function for the library's option `credentials`, tick(client) }. While a
-- job is running, nothing may wait, so the command calls tick regularly: after the server has
-- rejected the last login, tick fetches a new one for the watchdog. It returns a message on the
-- first failure of an outage, false when it succeeds again, and nil otherwise.

local core = require "holdfast.core"
local library_servers = require "holdfast.servers"
local process = require "holdfast.process"
local texts = require "holdfast.text"

local logins = {}

local MAX_OUTPUT = 65536 -- bytes that the credentials command may print
local TIMEOUT = 10 -- seconds that the credentials command may take
local RETRY_PAUSE = 1 -- seconds between a failed credentials command and the next one
local OUTAGE_GAP = 60 -- seconds without a failure after which the next failure begins a new outage

-- Returns a function (a failure's message, or nil for a success) → the result for tick.
local function new_outage_filter()
  local failed_at
  return function(failure)
    local last_failed_at, now = failed_at, core.now()
    failed_at = failure and now
    if not failure then return last_failed_at and false end
    if last_failed_at and now < last_failed_at + OUTAGE_GAP then return nil end
    return failure
  end
end

-- ---- the settings file ----

-- Returns the server's name for messages, or "" for a single URL, because all its servers share one
-- login.
local function name_of(config, url)
  return config.servers and core.parse_url(url) or ""
end

-- → a table: server's name → { user, password, url } | nil if a URL is malformed
local function read(config)
  local logins_by_name = {}
  for _, url in ipairs(config.servers or { config.url }) do
    local user, password = core.login_of(url)
    local name = name_of(config, url)
    if not user or not name then return nil end
    local stripped = library_servers.strip_login(url)
    logins_by_name[name] = { user = user, password = password, url = stripped }
  end
  return logins_by_name
end

local OTHER_SERVERS = "%s names other servers now; start the command again"

-- `reload()` → { url or servers }, the file's current content | nil, message. If the file now names
-- a different server, the new password is not sent to the old server. A half-written file is reread
-- for the next login. → a login | nil if a URL is malformed
function logins.of_file(path, config, reload)
  local last_logins = read(config)
  if not last_logins then return nil end
  -- → nil | what is wrong
  local function refresh(name)
    local current, message = reload()
    if not current then return "cannot read " .. message end
    local login = (read(current) or {})[name]
    if not login or login.url ~= last_logins[name].url then return OTHER_SERVERS:format(path) end
    last_logins[name] = login
  end
  local self, filter_failure, failure = {}, new_outage_filter(), nil
  function self.fetch(server, refused)
    local name = config.servers and server or ""
    local problem = refresh(name)
    failure = failure or problem
    if problem and refused then return nil, problem end
    return last_logins[name].user, last_logins[name].password
  end
  function self.tick(client)
    if not core.client.needs_login(client) then return nil end
    failure = nil
    core.client.log_in(client)
    return filter_failure(failure)
  end
  return self
end

-- ---- the credentials command ----

local EXPECTED = "it must print the user and the password, each on a line, or the password alone"

-- → user, password | nil, what is wrong with the output
local function parse(printed)
  local lines = {}
  for line in (texts.trim(printed) .. "\n"):gmatch("([^\n]*)\n") do
    lines[#lines + 1] = texts.trim(line)
  end
  if lines[1] == "" then return nil, "it printed nothing; " .. EXPECTED end
  if #lines > 2 then return nil, ("it printed %d lines; %s"):format(#lines, EXPECTED) end
  if #lines == 1 then return "", lines[1] end
  return lines[1], lines[2]
end

-- Starts the command. → { pid, deadline, parts, size } | nil, why it was not started
local function start(command)
  local pid, message = process.capture(command)
  if not pid then return nil, "cannot start it: " .. message end
  return { pid = pid, deadline = core.now() + TIMEOUT, parts = {}, size = 0 }
end

-- Reads output. → whether to read more: there was output, and not too much
local function read_output(run, seconds)
  local bytes = process.captured_read(seconds)
  if not bytes or bytes == "" then return false end
  run.parts[#run.parts + 1], run.size = bytes, run.size + #bytes
  return run.size <= MAX_OUTPUT
end

-- → the reason to reject the command's output | nil
local function output_problem(run, is_late, how, number)
  if is_late then return ("it did not end within %d s"):format(TIMEOUT) end
  if run.size > MAX_OUTPUT then return "it printed too much" end
  if how == "signal" then return ("it was terminated by signal %d"):format(number) end
  if number ~= 0 then return ("it exited with code %d"):format(number) end
end

-- Waits up to `seconds` for the command. Its children may keep its output open after it has ended.
-- → nil if the command is still running | user, password | false, what is wrong
local function finish(run, seconds)
  read_output(run, seconds)
  local is_late = core.now() >= run.deadline
  local how, number = process.captured_reap(run.pid, is_late or run.size > MAX_OUTPUT)
  if not how then return nil end
  while read_output(run, 0) do end
  process.captured_close()
  local problem = output_problem(run, is_late, how, number)
  if problem then return false, problem end
  local user, password_or_problem = parse(table.concat(run.parts))
  return user or false, password_or_problem
end

local FAILED = "the credentials command failed: %s"

-- Returns a login that uses this shell command. Never shows the command's output.
function logins.of_command(command)
  local run, retry_at, fresh_login = nil, 0, nil
  local self, filter_failure = {}, new_outage_filter()

  -- → the results of finish
  local function continue_run(seconds)
    local message
    if not run then run, message = start(command) end
    if not run then return false, message end
    local user, password_or_problem = finish(run, seconds)
    if user ~= nil then run = nil end
    return user, password_or_problem
  end

  function self.fetch()
    if fresh_login then return fresh_login.user, fresh_login.password end
    local user, password_or_problem
    repeat user, password_or_problem = continue_run(0.05) until user ~= nil
    if user then return user, password_or_problem end
    return nil, FAILED:format(password_or_problem)
  end

  function self.tick(client)
    if not run and (core.now() < retry_at or not core.client.needs_login(client)) then return end
    local user, password_or_problem = continue_run(0)
    if user == nil then return end
    if not user then
      retry_at = core.now() + RETRY_PAUSE
      return filter_failure(FAILED:format(password_or_problem))
    end
    if core.client.needs_login(client) then
      -- log_in calls fetch once for each server that rejected the last login; all get this one.
      fresh_login = { user = user, password = password_or_problem }
      core.client.log_in(client)
      fresh_login = nil
    end
    return filter_failure(nil)
  end

  return self
end

return logins
