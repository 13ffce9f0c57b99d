-- The command-line options that `run`, `hold` and other subcommands share: which locks, on which
-- server, how long to wait.

local library_options = require "holdfast.options"
local library_servers = require "holdfast.servers"
local locale = require "holdfast.locale"
local options = require "holdfast.command.options"
local process = require "holdfast.process"
local settings = require "holdfast.command.settings"

local target = {}

local MIN_DESCRIPTOR = 3 -- the job also uses lower descriptors

-- Checks a descriptor, and keeps the job from inheriting the descriptor, so that only this command
-- writes to it.
local function read_descriptor(argument)
  local fd = argument:find("^[0-9]+$") and #argument < 7 and locale.number(argument)
  if fd and fd >= MIN_DESCRIPTOR and process.withhold(fd) then return fd end
  return nil, "an open descriptor, 3 or higher"
end

target.reporting = {
  title = "Output",
  { "json", help = "print events as JSON to standard error, where the job may print, too" },
  { "json-fd", value = "N", check = read_descriptor, implies = "json",
    help = "print events as JSON to descriptor N, which the job does not get (… 3>events)" },
  { "verbose", short = "v", help = "print progress messages to standard error" },
}

target.waiting = {
  title = "Waiting",
  { "no-wait", short = "n", aliases = { "nonblock", "nb" }, help = "fail at once if the lock is taken" },
  { "wait", short = "w", value = "TIME", check = options.seconds,
    help = "give up after this long (default: wait forever)" },
  { "busy-exit", short = "E", aliases = { "conflict-exit-code" }, value = "CODE",
    check = options.exit_code, help = "exit code if the lock is taken (default: 1); 0 also suppresses the message" },
  { "quiet", short = "q", help = "print nothing if the lock is taken" },
}

target.locking = {
  title = "Lock",
  { "lease", value = "TIME", check = options.duration,
    help = "how long the lock stays taken if its holder crashes (default: 30s)" },
  { "one-by-one", value = "TYPE:ID", help = "lock this type and id instead of a KEY" },
  { "shared", short = "s", help = "share the lock with other --shared holders" },
  { "exclusive", short = "x", help = "exclude both --shared and other --exclusive holders" },
  { "permits", value = "N", check = options.count,
    help = "allow at most N holders at a time; N is ignored if the semaphore already exists" },
  { "name", value = "NAME", check = options.name, help = "holder name shown by `holdfast show`" },
}

target.TIME = "TIME is a number of seconds, or numbers with units: 90, 1.5, 5m, 1h30m."

local LEASE, GRACE = 30, 5 -- seconds, the defaults
local MAX_KEYS = 1024 -- maximum keys of a multi-lock
local MAX_KEY_BYTES = 131000 -- in all KEYs: Linux limits the length of an environment variable

-- → a new plan | nil, message
local function one_by_one(name, words)
  local biz_type, biz_id = name:match("^([^:]+):(.+)$")
  if not biz_type then return nil, ('--one-by-one must be TYPE:ID, not "%s"'):format(name) end
  if #words > 0 then
    return nil, ('unexpected argument "%s"; --one-by-one takes no KEY; put -- before the command'):format(words[1])
  end
  return { keys = { biz_type .. "_" .. biz_id }, biz_type = biz_type, biz_id = biz_id }
end

-- → "read" or "write" for a read/write lock, else false | nil, message
local function mode_of(given, config)
  if not given.shared and not given.exclusive then return false end
  if given.shared and given.exclusive then return nil, "-s and -x cannot be combined" end
  if given["one-by-one"] then return nil, "-s and -x do not work with --one-by-one" end
  if config.servers then return nil, "-s and -x need a single server, not --servers" end
  return given.shared and "read" or "write"
end

-- → nil | what is wrong with --permits
local function permits_problem(given, plan)
  if not given.permits then return nil end
  if #plan.keys > 1 then return "--permits takes one KEY" end
  if given["one-by-one"] then return "--permits does not work with --one-by-one" end
  if given.shared or given.exclusive then return "--permits does not work with -s or -x" end
  if plan.config.servers then return "--permits needs a single server, not --servers" end
end

-- → a new plan | nil, message
local function check_keys(keys)
  local seen = {}
  for _, key in ipairs(keys) do
    if key == "" then return nil, "KEY is empty" end
    if seen[key] then return nil, ('"%s" is given twice'):format(key) end
    if #keys > 1 and key:find("\n", 1, true) then
      return nil, "with several KEYs, none may contain a line break"
    end
    seen[key] = true
  end
  if #table.concat(keys, "\n") > MAX_KEY_BYTES then
    return nil, ("the KEYs are longer than %d bytes in total"):format(MAX_KEY_BYTES)
  end
  return { keys = keys }
end

-- → why the key cannot be locked | nil
function target.key_problem(key)
  local expected = library_options.unreserved_key(key)
  return expected and ('KEY must be %s, not "%s"'):format(expected, key)
end

local function keys_of(given, words)
  if given["one-by-one"] then return one_by_one(given["one-by-one"], words) end
  if #words == 0 then return nil, "no KEY" end
  return check_keys(words)
end

-- → { keys, biz_type, biz_id, given, config, mode, lease, grace, wait } | nil, message
function target.read(given, words)
  local plan, message = keys_of(given, words)
  if not plan then return nil, message end
  for _, key in ipairs(plan.keys) do
    message = target.key_problem(key)
    if message then return nil, message end
  end
  local config
  config, message = settings.load(given)
  if not config then return nil, message end
  if given["no-wait"] and given.wait then return nil, "-n and -w cannot be combined" end
  if given.quiet and given.verbose then return nil, "-q and -v cannot be combined" end
  plan.given, plan.config = given, config
  plan.mode, message = mode_of(given, config)
  if plan.mode == nil then return nil, message end
  message = permits_problem(given, plan)
  if message then return nil, message end
  plan.lease = config.lease or LEASE
  plan.grace = config.grace or GRACE
  plan.wait = given["no-wait"] and 0 or given.wait or math.huge
  return plan
end

-- Creates a client with timeouts that detect a hung server long before the lease ends.
-- `more`: further options. → client | nil, message
function target.client(plan, more)
  if #plan.keys > MAX_KEYS then return nil, ("at most %d KEYs"):format(MAX_KEYS) end
  local timeout = math.max(plan.lease / 10, 0.1)
  local client_options = {
    connect_timeout = math.min(1, timeout),
    command_timeout = math.min(3, timeout),
    lease = plan.lease,
  }
  for name, value in pairs(more or {}) do client_options[name] = value end
  return settings.client(plan.config, client_options)
end

-- ---- the job's environment ----

local function token_text(lock)
  return lock:token_text() or ""
end

target.token_text = token_text

-- Returns the job's environment variables. With several locks, key, owner and token have one line
-- per lock.
function target.environment(plan, locks)
  local keys, owners, tokens = {}, {}, {}
  for i, lock in ipairs(locks) do
    keys[i], owners[i], tokens[i] = lock:key(), lock:owner(), token_text(lock)
  end
  local url, servers = settings.for_job(plan.config, plan.given["pass-url"])
  local variables = {
    "HOLDFAST_KEY=" .. table.concat(keys, "\n"),
    "HOLDFAST_OWNER=" .. table.concat(owners, "\n"),
    "HOLDFAST_TOKEN=" .. table.concat(tokens, "\n"),
    "HOLDFAST_URL=" .. url,
  }
  if servers ~= "" or os.getenv("HOLDFAST_SERVERS") then
    variables[#variables + 1] = "HOLDFAST_SERVERS=" .. servers
  end
  return variables
end

local function split_lines(value)
  local lines = {}
  for line in (value .. "\n"):gmatch("([^\n]*)\n") do lines[#lines + 1] = line end
  return lines
end

-- Returns the locks named in the environment: key → { owner, token }. The variables do not prove
-- that a lock is held: a process that outlives the job still has them, and so does a process that
-- uses a different server. A different server cannot be detected, because a server may have several
-- names.
function target.inherited(config)
  local environment = library_servers.environment()
  if (environment.servers ~= nil) ~= (config.servers ~= nil) then return {} end
  local key, owner = os.getenv("HOLDFAST_KEY") or "", os.getenv("HOLDFAST_OWNER") or ""
  if key == "" or owner == "" then return {} end
  local owners, tokens = split_lines(owner), split_lines(os.getenv("HOLDFAST_TOKEN") or "")
  local keys = #owners > 1 and split_lines(key) or { key }
  local inherited = {}
  for i, one in ipairs(keys) do inherited[one] = { owner = owners[i], token = tokens[i] } end
  return inherited
end

return target
