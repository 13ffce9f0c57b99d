-- Certificates made by openssl in a private directory, which is removed when the program ends.
--
--   local made = certificates.make()
--   made.ca, made.other_ca                      authorities
--   made.server, made.expired, made.elsewhere   signed by `ca`; for localhost, 127.0.0.1 and ::1;
--                                               `elsewhere` for another name
--   made.client                                 signed by `ca`
--   made.ending(days)                           signed by `ca`, same hosts, valid for `days`
--   made.stranger                               signed by `other_ca`
--
-- Each is { cert = path, key = path }.

local files = require "spec.support.files"
local process = require "spec.support.process"

local certificates = {}

local NEW_KEY = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
local HERE = "DNS:localhost,IP:127.0.0.1,IP:::1"

-- Runs openssl with a command line; raises if it fails. Uses no shell, which would inherit a
-- preloaded sanitizer.
function certificates.openssl(command, ...)
  local words = { "openssl", env = { LD_PRELOAD = false } }
  for word in command:format(...):gmatch("%S+") do words[#words + 1] = word end
  local child = process.start(words)
  local how, code = child:wait(30)
  if how ~= "exit" or code ~= 0 then
    error(("openssl %s: %s"):format(words[2], child:output()), 2)
  end
end

local run = certificates.openssl

local function authority(directory, name)
  local made = { cert = directory .. name .. ".pem", key = directory .. name .. ".key" }
  run("req -x509 %s -keyout %s -out %s -subj /CN=%s -days 3650", NEW_KEY, made.key, made.cert, name)
  return made
end

local write = files.write

-- `days`: how long the certificate is valid; nil means years.
local function signed(directory, name, by, alternatives, days)
  local made = { cert = directory .. name .. ".pem", key = directory .. name .. ".key" }
  local request, extensions = directory .. name .. ".csr", directory .. name .. ".ext"
  write(extensions, "subjectAltName=" .. alternatives .. "\n")
  run("req %s -keyout %s -out %s -subj /CN=%s", NEW_KEY, made.key, request, name)
  run("x509 -req -in %s -CA %s -CAkey %s -set_serial %d -days %d -extfile %s -out %s", request,
    by.cert, by.key,
    math.random(1, 1e9), days or 3650, extensions, made.cert)
  return made
end

-- `openssl x509` can backdate a certificate only since 3.4; `openssl ca` always can.
local CA = [[
[ca]
default_ca = here
[here]
database = %s
new_certs_dir = %s
serial = %s
default_md = sha256
policy = any
[any]
commonName = supplied
]]

local function expired(directory, like, by)
  local at = directory .. "expired"
  local made = { cert = at .. ".pem", key = like.key }
  write(at .. ".index", "")
  write(at .. ".serial", "01\n")
  write(at .. ".cnf", CA:format(at .. ".index", directory, at .. ".serial"))
  run("ca -batch -notext -config %s -cert %s -keyfile %s -in %s -extfile %s -out %s "
    .. "-startdate 20200101000000Z -enddate 20200201000000Z", at .. ".cnf", by.cert, by.key,
    directory .. "server.csr", directory .. "server.ext", made.cert)
  return made
end

function certificates.make()
  local directory = process.directory() .. "/"
  local ca, other = authority(directory, "ca"), authority(directory, "other-ca")
  local server = signed(directory, "server", ca, HERE)
  return {
    ca = ca,
    other_ca = other,
    server = server,
    expired = expired(directory, server, ca),
    elsewhere = signed(directory, "elsewhere", ca, "DNS:redis.example"),
    client = signed(directory, "client", ca, "DNS:client"),
    stranger = signed(directory, "stranger", other, HERE),
    directory = directory,
    ending = function(days) return signed(directory, ("ending-%d"):format(days), ca, HERE, days) end,
  }
end

return certificates
