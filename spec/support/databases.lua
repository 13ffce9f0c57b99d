-- Real database servers, each in a directory of its own, reachable only locally. They need Debian's
-- packages postgresql, mariadb-server-core and -client-core, and lua-dbi with its drivers.
--
--   databases.start "postgresql" → { place, stop() } | nil, what is missing
--   databases.connect(place) → a DBI connection; `place` is a string, valid in other processes, too

local process = require "spec.support.process"

local unpack = table.unpack or unpack

local databases = { names = { "postgresql", "mariadb", "sqlite" } }

local function first_line(command)
  local pipe = assert(io.popen(command))
  local line = pipe:read "*l"
  pipe:close()
  return line
end

local IS_ROOT = first_line "id -u" == "0"

-- Neither server can run as root.
local function as_user(user, words)
  if not IS_ROOT then return words end
  local all = { "setpriv", "--reuid=" .. user, "--regid=" .. user, "--clear-groups" }
  for _, word in ipairs(words) do all[#all + 1] = word end
  return all
end

local function give(directory, user)
  if IS_ROOT then assert(process.succeeds(("chown -R %s %s"):format(user, directory))) end
end

local function run(words)
  local child = process.start(words)
  local how, code = child:wait(120)
  assert(how == "exit" and code == 0, child:output())
end

-- → a connection | nil, why not
local function try(place)
  local words = {}
  for word in (place .. "|"):gmatch "(.-)|" do words[#words + 1] = word end
  words[6] = tonumber(words[6])
  local fine, connection = pcall(require("DBI").Connect, unpack(words, 1, #words))
  if not fine or not connection then return nil, connection end
  connection:autocommit(true)
  return connection
end

function databases.connect(place)
  local connection = assert(try(place))
  if place:find "^SQLite3" then
    assert(databases.run(connection, "PRAGMA busy_timeout = 60000"))
    assert(databases.run(connection, "PRAGMA synchronous = OFF"))
  end
  return connection
end

-- Waits until the server accepts connections.
local function served(child, directory, place)
  local self = { place = place }
  function self.stop()
    child:kill "INT"
    child:wait(30)
    child:stop()
    process.remove(directory)
  end
  local there = process.wait_until(function()
    assert(child:status() == nil, child:output())
    local connection = try(place)
    return connection and (connection:close() or true)
  end, 60)
  if not there then self.stop() end
  assert(there, "the database does not answer")
  return self
end

local START = {}

function START.postgresql()
  local bin = first_line "ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1"
  if not bin then return nil, "no postgresql" end
  local directory = process.directory()
  local data = directory .. "/data"
  give(directory, "postgres")
  run(as_user("postgres", { bin .. "/initdb", "-D", data, "-A", "trust", "-U", "holdfast", "-N" }))
  local child = process.start(as_user("postgres", { bin .. "/postgres", "-D", data, "-k", directory,
    "-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=200" }))
  return served(child, directory, "PostgreSQL|postgres|holdfast||" .. directory)
end

function START.mariadb()
  local program = first_line "command -v mariadbd"
  if not program then return nil, "no mariadb-server-core" end
  local directory = process.directory()
  local user = IS_ROOT and "nobody" or first_line "id -un"
  give(directory, user)
  run { "mariadb-install-db", "--no-defaults", "--datadir=" .. directory .. "/data", "--user=" .. user,
    "--auth-root-authentication-method=normal", "--skip-test-db" }
  local port = process.free_port()
  local child = process.start { program, "--no-defaults", "--datadir=" .. directory .. "/data",
    "--user=" .. user, "--socket=" .. directory .. "/sock", "--port=" .. port,
    "--bind-address=127.0.0.1", "--innodb-flush-log-at-trx-commit=0", "--max-connections=200" }
  local self = served(child, directory, "MySQL|mysql|root||127.0.0.1|" .. port)
  local connection = databases.connect(self.place)
  assert(databases.run(connection, "CREATE DATABASE holdfast"))
  connection:close()
  self.place = "MySQL|holdfast|root||127.0.0.1|" .. port
  return self
end

function START.sqlite()
  local directory = process.directory()
  return { place = "SQLite3|" .. directory .. "/file", stop = function() process.remove(directory) end }
end

function databases.start(name)
  if not pcall(require, "DBI") then return nil, "no lua-dbi" end
  return START[name]()
end

-- Runs one statement. → how many rows it has changed | nil, the error
function databases.run(connection, statement)
  local prepared, wrong = connection:prepare(statement)
  if not prepared then return nil, wrong end
  local done, message = prepared:execute()
  if not done then return nil, message end
  local count = prepared:affected()
  prepared:close()
  return count
end

-- → the rows, each a list
function databases.rows(connection, query)
  local prepared = assert(connection:prepare(query))
  assert(prepared:execute())
  local rows = {}
  for row in prepared:rows(false) do
    local own = {}
    for i, value in ipairs(row) do own[i] = value end
    rows[#rows + 1] = own
  end
  prepared:close()
  return rows
end

return databases
