-- Real nginx servers with the Lua module, each in a private directory, listening on a unix socket
-- there. A server accepts requests when start() returns, and is stopped when the program ends.

local files = require "spec.support.files"
local process = require "spec.support.process"
local sys = require "spec.support.sys"

local MODULES = "/usr/lib/nginx/modules"

local nginx = {}

local Server = {}
Server.__index = Server

local function here()
  local pipe = assert(io.popen("pwd"))
  local path = pipe:read("*l")
  pipe:close()
  return path
end

local read = files.read

local write = files.write

local CONFIG = [[
load_module %(modules)/ndk_http_module.so;
load_module %(modules)/ngx_http_lua_module.so;
%(user)
%(main)
daemon off;
worker_processes %(workers);
worker_shutdown_timeout 30s;
pid %(directory)/nginx.pid;
error_log %(directory)/error.log notice;
events { worker_connections %(connections); }
http {
  access_log off;
  client_body_temp_path %(directory)/body;
  proxy_temp_path %(directory)/proxy;
  fastcgi_temp_path %(directory)/fastcgi;
  uwsgi_temp_path %(directory)/uwsgi;
  scgi_temp_path %(directory)/scgi;
  keepalive_requests 1000000;
  lua_package_path "%(package_path)";
  lua_package_cpath "%(package_cpath)";
  lua_code_cache %(code_cache);
  %(http)
  server {
    listen unix:%(directory)/http.sock;
    %(listen)
    default_type text/plain;
    %(server)
  }
}
]]

local function user()
  local pipe = assert(io.popen("id -u"))
  local root = pipe:read("*l") == "0"
  pipe:close()
  return root and "user root;" or ""
end

local PACKAGE_PATH = "%s/?.lua;%s/lua/?.lua;%s/lua/?/init.lua;/usr/share/lua/5.1/?.lua;;"

local function write_config(self, options)
  local project = here()
  local values = {
    modules = MODULES,
    user = user(),
    main = options.main or "",
    directory = self.directory,
    workers = options.workers or 1,
    connections = options.connections or 4096,
    package_path = options.package_path or PACKAGE_PATH:gsub("%%s", project),
    package_cpath = options.package_cpath or project .. "/build/luajit/?.so;;",
    code_cache = options.code_cache == false and "off" or "on",
    http = options.http or "",
    server = options.server or "",
    listen = self.port and ("listen 127.0.0.1:%d;"):format(self.port) or "",
  }
  write(self.directory .. "/nginx.conf", (CONFIG:gsub("%%%((%w[%w_]*)%)", values)))
end

-- Returns the option for the log before the configuration is read, which nginx has since 1.19.5.
local function early_log(directory)
  local pipe = io.popen("nginx -h 2>&1")
  local help = pipe:read("*a")
  pipe:close()
  return help:find(" -e ", 1, true) and { "-e", directory .. "/error.log" } or {}
end

local function launch(self, env, is_up)
  local log = early_log(self.directory)
  self.process = process.start {
    "nginx", "-p", self.directory, "-c", self.directory .. "/nginx.conf", log[1], log[2],
    output = self.directory .. "/output.log",
    env = env,
  }
  process.wait_until(function() return self.process:status() or is_up() end, 10)
  if self.process:status() or not is_up() then
    error("nginx does not start: " .. self:log() .. self.process:output(), 3)
  end
  return self
end

local function listens(path)
  local fd = sys.connect_unix(path)
  if fd then sys.close(fd) end
  return fd ~= nil
end

-- start{ workers = 1, code_cache = true, tcp = false, main = "directives", http = "directives",
--   server = "directives", env = variables, package_path, package_cpath }
function nginx.start(options)
  local self = setmetatable({ directory = process.directory() }, Server)
  if options.tcp then self.port = process.free_port() end
  write_config(self, options)
  local path = self.directory .. "/http.sock"
  local env = { LD_PRELOAD = false }
  for name, value in pairs(options.env or {}) do env[name] = value end
  return launch(self, env, function()
    return listens(path) and #self:workers() == (options.workers or 1)
  end)
end

-- Starts an example's nginx.conf and handlers on a free port instead of 8080.
function nginx.example(directory, env)
  local self = setmetatable({ directory = process.directory(), port = process.free_port() }, Server)
  local text = read(directory .. "/nginx.conf"):gsub("127%.0%.0%.1:8080;", function()
    return ("127.0.0.1:%d; listen unix:%s/http.sock;"):format(self.port, self.directory)
  end)
  write(self.directory .. "/nginx.conf", user() .. "\n" .. text)
  assert(process.succeeds(("cp -r '%s/handlers' '%s/'"):format(directory, self.directory)))
  env.LD_PRELOAD = false
  env.LUA_PATH = process.lua_path:gsub("%./", here() .. "/")
  env.LUA_CPATH = here() .. "/build/luajit/?.so;;"
  return launch(self, env, function() return listens(self.directory .. "/http.sock") end)
end

-- Returns whether nginx can run this build. It needs LuaJIT, and some systems do not package
-- ngx_lua.
function nginx.is_there()
  local file = io.open(MODULES .. "/ngx_http_lua_module.so")
  if file then file:close() end
  return file ~= nil and process.flavour == "luajit" and process.build == "./build"
end

function Server:log() return files.read_any(self.directory .. "/error.log") end

-- Returns the log's lines at level error or above.
function Server:errors()
  local lines = {}
  for line in self:log():gmatch("[^\n]+") do
    if line:find("%[error%]") or line:find("%[crit%]") or line:find("%[alert%]")
        or line:find("%[emerg%]") then
      lines[#lines + 1] = line
    end
  end
  return lines
end

-- Returns the pids of the running workers, according to the log.
function Server:workers()
  local alive = {}
  for pid in self:log():gmatch("start worker process (%d+)") do alive[tonumber(pid)] = true end
  for pid in self:log():gmatch("worker process (%d+) exited") do alive[tonumber(pid)] = nil end
  local list = {}
  for pid in pairs(alive) do list[#list + 1] = pid end
  table.sort(list)
  return list
end

function Server:reload() self.process:kill("HUP") end

-- Returns a process's resident kilobytes.
function nginx.resident(pid)
  return tonumber((files.read(("/proc/%d/status"):format(pid)):match("VmRSS:%s+(%d+)")))
end

local Request = {}
Request.__index = Request

local function text_of(method, path, options)
  local lines = { ("%s %s HTTP/1.1"):format(method, path), "Host: spec", "Connection: close" }
  for name, value in pairs(options.headers or {}) do lines[#lines + 1] = name .. ": " .. value end
  if options.body then lines[#lines + 1] = "Content-Length: " .. #options.body end
  return table.concat(lines, "\r\n") .. "\r\n\r\n" .. (options.body or "")
end

-- Begins a request; several may be in progress. options: method, headers, body
function Server:begin(path, options)
  options = options or {}
  local fd = assert(sys.connect_unix(self.directory .. "/http.sock"))
  assert(sys.write(fd, text_of(options.method or "GET", path, options), 5))
  return setmetatable({ fd = fd, received = "" }, Request)
end

local function unchunk(body)
  local parts, at = {}, 1
  while true do
    local size, start = body:match("^(%x+)[^\r\n]*\r\n()", at)
    if not size or size == "0" then return table.concat(parts) end
    local count = tonumber(size, 16)
    parts[#parts + 1] = body:sub(start, start + count - 1)
    at = start + count + 2
  end
end

local function parse(text)
  local status, head, body = text:match("^HTTP/1%.1 (%d+)[^\r\n]*\r\n(.-)\r\n\r\n(.*)$")
  if not status then return nil, "no answer: " .. text end
  local headers = {}
  for name, value in head:gmatch("([^:\r\n]+): ([^\r\n]*)") do headers[name:lower()] = value end
  if headers["transfer-encoding"] == "chunked" then body = unchunk(body) end
  return { status = tonumber(status), headers = headers, body = body }
end

-- → { status, headers, body } | nil, message
function Request:finish(timeout)
  local deadline = sys.now() + (timeout or 30)
  while true do
    local left = deadline - sys.now()
    local bytes, message = sys.read(self.fd, left > 0 and left or 0)
    if not bytes or bytes == "" then
      self:abort()
      if not bytes then return nil, message end
      return parse(self.received)
    end
    self.received = self.received .. bytes
  end
end

-- Hangs up.
function Request:abort()
  if self.fd then sys.close(self.fd) end
  self.fd = nil
end

function Server:get(path, options)
  local response, message = self:begin(path, options):finish(options and options.timeout)
  if not response then error(message, 2) end
  return response
end

-- Returns a server that another process has started, for requests.
function nginx.at(directory) return setmetatable({ directory = directory }, Server) end

-- QUIT lets requests finish, TERM does not.
function Server:stop(signal)
  self.process:kill(signal or "QUIT")
  if self.process:wait(10) == nil then self.process:stop() end
end

return nginx
