-- Loads servers' addresses and other settings from options, the environment (addresses only) and a
-- settings file: $HOLDFAST_CONFIG if set, otherwise the first of $XDG_CONFIG_HOME/holdfast.conf
-- (~/.config/holdfast.conf) and /etc/holdfast.conf that exists.
--
-- The file contains lines `name = value` and # comments.

local options = require "holdfast.command.options"
local library_options = require "holdfast.options"
local locale = require "holdfast.locale"
local lazy = require "holdfast.lazy"
local clients = lazy "holdfast.client"
local logins = lazy "holdfast.command.logins"
local process = require "holdfast.process"
local library_servers = require "holdfast.servers"
local texts = require "holdfast.text"

local settings = {}

local function check_tenant(prefix)
  local expected = library_options.tenant(prefix)
  if not expected then return prefix end
  return nil, expected
end

settings.options = {
  title = "Server",
  { "url", value = "URL",
    help = "redis://[user:password@]host[:port][/db], unix:///path, redis+sentinel://host,host/master "
      .. "or redis+cluster://host,host; rediss for TLS, valkey for redis "
      .. "(default: $HOLDFAST_URL, or redis://127.0.0.1:6379)" },
  { "servers", value = "URL,URL", help = "independent servers: a majority of them must grant the lock" },
  { "restart-guard", value = "TIME", check = options.seconds,
    help = "with --servers: do not trust a restarted server for this long; set it to the longest lease in use" },
  { "ca", value = "FILE", help = "CA certificates to trust for rediss://, PEM (default: the system's)" },
  { "cert", value = "FILE", help = "client certificate for rediss://, PEM" },
  { "key", value = "FILE", help = "private key for --cert, PEM" },
  { "credentials-command", value = "COMMAND",
    help = "get user and password, or the password alone, from what this shell command prints" },
  { "tenant", value = "PREFIX", check = check_tenant,
    help = "prefix for your keys on a server shared with users you do not trust" },
}

-- Returns the option with this name, for a subcommand that has only some of them.
function settings.option(name)
  for _, option in ipairs(settings.options) do
    if option[1] == name then return option end
  end
end

settings.known = { -- name of a setting in a file → its check
  url = options.text,
  servers = options.text,
  name = options.name,
  lease = options.duration,
  grace = options.seconds,
  restart_guard = options.seconds,
  connect_timeout = options.timeout,
  command_timeout = options.timeout,
  ca = options.text,
  cert = options.text,
  key = options.text,
  credentials_command = options.text,
  tenant = check_tenant,
}

-- Returns an environment variable, or nil if it is empty.
local function variable(name)
  local value = os.getenv(name)
  return value ~= "" and value or nil
end

local function default_paths()
  local home = variable "HOME"
  local config_home = variable "XDG_CONFIG_HOME" or home and home .. "/.config"
  local system_path = "/etc/holdfast.conf"
  return config_home and { config_home .. "/holdfast.conf", system_path } or { system_path }
end

local NO_FILE, NO_ACCESS, NO_DIRECTORY = 2, 13, 20 -- values of errno
local MAX_SIZE = 65536 -- maximum bytes of a settings file

local function has_bit(mode, bit)
  return mode % (bit * 2) >= bit
end

-- A user who can write to the file chooses the server, and thus what is locked. → why not to trust
-- the file | nil
local function trust_problem(mode, is_foreign)
  if is_foreign then return "it belongs to another user; chown it to root or to the user who runs the command" end
  if has_bit(mode, 2) then return "it is world-writable; run chmod o-w on it" end
end

local has_warned_of_password = false

-- Warns once, on a terminal only, so that cron jobs remain silent.
local function warn_of_password(text, path, mode)
  local has_password = text:find("://[^/@%s:]*:[^/@%s]+@")
  local may_warn = not has_warned_of_password and process.is_terminal(2)
  if has_password and may_warn and has_bit(mode, 4) then
    has_warned_of_password = true
    process.say("holdfast: " .. texts.printable(path) .. " contains a password and is world-readable; run chmod o-r on it\n")
  end
end

-- runuser, setpriv and su keep HOME, so the file may belong to another user.
local OTHER_USERS_FILE = "; set HOME to the home of the user who runs the command, "
  .. "or HOLDFAST_CONFIG to a settings file (/dev/null: none)"

-- `known_path`: the path when the file is reread, otherwise nil.
-- → the contents of the settings file, its path | "" if there is none | nil, why it cannot be read
local function read_text(known_path)
  local given = known_path or variable "HOLDFAST_CONFIG"
  if given == "/dev/null" then return "" end
  for _, path in ipairs(given and { given } or default_paths()) do
    local text, mode, is_foreign = process.read_file(path, MAX_SIZE)
    if text then
      local why = trust_problem(mode, is_foreign)
      if why then return nil, path .. ": " .. why end
      warn_of_password(text, path, mode)
      return text, path
    end
    local message, number = mode, is_foreign
    local is_missing = number == NO_FILE or number == NO_DIRECTORY
    local advice = not given and number == NO_ACCESS and OTHER_USERS_FILE or ""
    if given or not is_missing then return nil, path .. ": " .. message .. advice end
  end
  return ""
end

local SPACES = locale.SPACE .. "*"
local SETTING = "^" .. SPACES .. "([A-Za-z0-9_]+)" .. SPACES .. "=" .. SPACES .. "(.*)$"

local function read_line(line)
  line = line:gsub("^#.*", ""):gsub(locale.SPACE .. "#.*", "")
  if not line:find(locale.NOT_SPACE) then return true end
  local name, text = line:match(SETTING)
  if not name then return nil, "expected `name = value`" end
  text = text:match("^.*" .. locale.NOT_SPACE) or ""
  if not settings.known[name] then return nil, ('unknown setting "%s"'):format(name) end
  local value, expected = settings.known[name](text)
  if value == nil then return nil, name .. " must be " .. expected end
  return name, value
end

-- → the settings of the file, its path | nil, message
local function read_file(known_path)
  local text, path = read_text(known_path)
  if not text then return nil, "cannot read " .. path end
  local values, number = {}, 0
  for line in text:gmatch("([^\n]*)\n?") do
    number = number + 1
    local name, value = read_line(line)
    if values[name] ~= nil then name, value = nil, name .. " is set twice" end
    if not name then return nil, ("%s:%d: %s"):format(path, number, value) end
    if name ~= true then values[name] = value end
  end
  if values.url and values.servers then
    return nil, path .. ": url and servers cannot be combined"
  end
  return values, path or ""
end

-- Removes users and passwords, for a job's environment. { url or servers } → the same form
local function without_logins(config)
  local stripped = { url = config.url and library_servers.strip_login(config.url) }
  for i, url in ipairs(config.servers or {}) do
    stripped.servers = stripped.servers or {}
    stripped.servers[i] = library_servers.strip_login(url)
  end
  return stripped
end

-- Returns the servers as values of HOLDFAST_URL and HOLDFAST_SERVERS.
local function variables(config)
  return config.url or "", config.servers and table.concat(config.servers, ",") or ""
end

-- Returns the servers that a source names in its field `servers` or `url`.
-- → { url or servers, source = its name for messages }, or nil if it names none | nil, message
local function servers_of(source, servers_name, url_name)
  if source.servers then
    local urls, expected = library_servers.split(source.servers)
    if not urls then return nil, ("%s must be %s"):format(servers_name, expected) end
    return { servers = urls, source = servers_name }
  end
  return source.url and { url = library_servers.url(source.url), source = url_name } or nil
end

-- Returns whether this `holdfast` is running inside a job whose environment contains the file's
-- servers without their passwords. The program then uses the file, if it can read the file.
local function lacks_logins(config, other)
  if not other or not variable "HOLDFAST_OWNER" then return false end
  local url, servers = variables(config)
  local other_url, other_servers = variables(without_logins(other))
  return url == other_url and servers == other_servers
end

local function servers_of_file(file, path)
  return servers_of(file, "servers in " .. path, "url in " .. path)
end

-- Returns the servers from the first source that names any.
-- → { url or servers, source, inherited = from the environment, of_file = from the settings file }
-- | nil, message
local function choose_servers(given, file, path)
  local config, message = servers_of(given, "--servers", "--url")
  if config or message then return config, message end
  local from_env, from_file
  from_env, message = servers_of(library_servers.environment(), "servers in $HOLDFAST_SERVERS",
    "url in $HOLDFAST_URL")
  if message then return nil, message end
  from_file, message = servers_of_file(file, path)
  if from_env and not lacks_logins(from_env, from_file) then
    from_env.inherited = true
    return from_env
  end
  if message then return nil, message end
  if from_file then from_file.of_file = true end
  return from_file or { url = "redis://127.0.0.1:6379", source = "url" }
end

local function is_over_tls(config)
  for _, url in ipairs(config.servers or { config.url }) do
    if url:find("^rediss") or url:find("^valkeys") then return true end
  end
  return false
end

-- TLS settings in a file apply only to servers that use TLS; TLS options on the command line
-- require a server that uses TLS.
-- → the library's option tls, or nil | nil, message
local function choose_tls(config, given, file)
  local over_tls = is_over_tls(config)
  if not over_tls and (given.ca or given.cert or given.key) then
    return nil, "--ca, --cert and --key need rediss://"
  end
  local pair = (given.cert or given.key) and given or file
  if (pair.cert == nil) ~= (pair.key == nil) then
    return nil, pair == given and "--cert and --key must be used together"
      or "cert and key must be set together in the settings file"
  end
  local ca = given.ca or file.ca
  if not over_tls or not (ca or pair.cert) then return nil end
  return { ca_file = ca, cert = pair.cert, key = pair.key }
end

local TWO_LOGINS = "%s has a user or a password; leave them out of the URL, or leave out %s"

local function has_login(config)
  local url, servers = variables(config)
  local stripped_url, stripped_servers = variables(without_logins(config))
  return url ~= stripped_url or servers ~= stripped_servers
end

-- Returns the command that prints the login. A login in a URL from the command line or the
-- environment overrides the file's command. → the command, or nil | nil, message
local function choose_command(config, given, file, path)
  local command, name = given["credentials-command"], "--credentials-command"
  if not command then
    command, name = file.credentials_command, "credentials_command in " .. path
    if command and not config.of_file and has_login(config) then return nil end
  end
  if command and has_login(config) then return nil, TWO_LOGINS:format(config.source, name) end
  return command
end

-- Returns the source of the user and the password, if they may change.
-- → a login, or nil if they are in the URLs | nil, message
local function choose_login(config, given, file, path)
  local command, message = choose_command(config, given, file, path)
  if message then return nil, message end
  if command then return logins.of_command(command) end
  if not config.of_file then return nil end
  return logins.of_file(path, config, function()
    local current, why = read_file(path)
    if not current then return nil, (why:gsub("^cannot read ", "")) end
    local servers, problem = servers_of_file(current, path)
    if problem then return nil, problem end
    return servers or {}
  end)
end

-- → { url or servers, source, inherited, of_file, name, lease, grace, tenant, restart_guard,
-- connect_timeout, command_timeout, tls, login } | nil, message
function settings.load(given)
  if given.url and given.servers then return nil, "--url and --servers cannot be combined" end
  local file, path = read_file()
  if not file then return nil, path end
  local result, message = choose_servers(given, file, path)
  if not result then return nil, message end
  for _, name in ipairs { "name", "lease", "grace", "tenant" } do result[name] = given[name] or file[name] end
  result.restart_guard = given["restart-guard"] or file.restart_guard
  result.connect_timeout, result.command_timeout = file.connect_timeout, file.command_timeout
  if given["restart-guard"] and not result.servers then
    return nil, "--restart-guard needs --servers"
  end
  result.tls, message = choose_tls(result, given, file)
  if message then return nil, message end
  result.login, message = choose_login(result, given, file, path)
  if message then return nil, message end
  return result
end

-- Returns the variables that name the servers to a job. The job may run as another user, so it gets
-- no logins, unless this program's environment already contains them or `with_logins` is set
-- (--pass-url).
-- → the values of HOLDFAST_URL and HOLDFAST_SERVERS, or ""
function settings.for_job(config, with_logins)
  return variables((config.inherited or with_logins) and config or without_logins(config))
end

settings.EXPOSED = " lets scripts of one user change those of others (CVE-2025-46818), so other users can "
  .. "run commands with the rights of this one; upgrade the server"

-- Returns a listener that warns once, on a terminal only.
local function warn_of_exposure()
  local has_warned = false
  return function(event)
    if event.event ~= "tenant_exposed" or has_warned or not process.is_terminal(2) then return end
    has_warned = true
    process.say("holdfast: " .. texts.shown(event.server .. settings.EXPOSED) .. "\n")
  end
end

-- Fetches the login that the client's watchdog needs. Never waits. → what the login's tick returns
function settings.tick(config, client)
  if config.login then return config.login.tick(client) end
end

-- Creates a client. `more`: further options, whose timeouts the user's settings override.
-- → the client | nil, message
function settings.client(config, more)
  local given = { url = config.url }
  if config.servers then
    given = { servers = config.servers, mode = "quorum", restart_guard = config.restart_guard }
  end
  given.tls, given.tenant = config.tls, config.tenant
  if config.tenant then given.on_event = warn_of_exposure() end
  if config.login then
    local stripped = without_logins(config)
    given.credentials, given.url, given.servers = config.login.fetch, stripped.url, stripped.servers
  end
  for name, value in pairs(more or {}) do given[name] = value end
  for _, name in ipairs { "connect_timeout", "command_timeout" } do
    given[name] = config[name] or given[name]
  end
  local created, client = pcall(clients.new, given, 1)
  if created then return client end
  local message = tostring(client):gsub("^.-holdfast%.new: ", "") -- any locale: tostring of an error
  local prefix = message:match("^url: ") or message:match("^servers: ")
  return nil, prefix and config.source .. ": " .. message:sub(#prefix + 1) or message
end

return settings
