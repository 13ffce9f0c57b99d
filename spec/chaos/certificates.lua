-- The certificates of a chaos round over TLS: two sets, each with an authority of its own, of which
-- one is in use. Clients read theirs at fixed paths.

local certificates = require "spec.support.certificates"
local files = require "spec.support.files"
local process = require "spec.support.process"

local Certificates = {}
Certificates.__index = Certificates

local function copy(from, to) assert(os.rename(files.write(to .. ".new", files.read(from)), to)) end

function Certificates.new()
  local self = setmetatable({ directory = process.directory(),
    sets = { certificates.make(), certificates.make() } }, Certificates)
  self:install()
  return self
end

-- Returns the option tls of redis.start.
function Certificates:of_server()
  local set = self.sets[1]
  return { cert = set.server.cert, key = set.server.key, ca = set.ca.cert, clients = "yes" }
end

-- From now on the other set is in use.
function Certificates:renew() self.sets[1], self.sets[2] = self.sets[2], self.sets[1] end

-- From now on the server accepts only this set, even after a restart.
function Certificates:give(server)
  local made = self:of_server()
  assert(server:cli("CONFIG", "SET", "tls-cert-file", made.cert, "tls-key-file", made.key,
    "tls-ca-cert-file", made.ca) == "OK")
  assert(server:cli("CONFIG", "REWRITE") == "OK")
end

-- Copies the set to where the clients read it: ca.pem, cert.pem, key.pem.
function Certificates:install()
  local set = self.sets[1]
  copy(set.ca.cert, self.directory .. "/ca.pem")
  copy(set.client.cert, self.directory .. "/cert.pem")
  copy(set.client.key, self.directory .. "/key.pem")
end

function Certificates:stop()
  process.remove(self.directory)
  for _, set in ipairs(self.sets) do process.remove((set.directory:gsub("/$", ""))) end
end

return Certificates
