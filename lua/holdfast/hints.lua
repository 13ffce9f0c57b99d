-- What a message says about an option that a function does not have: the function that has it, or
-- the option that was probably meant.

local locale = require "holdfast.locale"
local shown = require("holdfast.options").shown

local hints = {}

-- Names that other libraries use for holdfast's options, in lower case and without separators.
local FOREIGN = {}

local function foreign(ours, ...)
  for _, theirs in ipairs { ... } do FOREIGN[theirs] = ours end
end

foreign({ "wait", "command_timeout" }, "timeout")
foreign({ "wait" }, "retry", "retries", "retrycount", "retrydelay", "retryinterval", "retryjitter",
  "retrytimes",
  "waittime", "maxwait", "blocking", "blockingtimeout", "acquiretimeout", "step", "ratio",
  "maxstep")
foreign({ "expire", "lease" }, "ttl", "expire", "expires", "expiry", "expiration", "exptime", "ex",
  "px")
foreign({ "lease" }, "leasetime", "locktimeout", "locktime", "duration")
foreign({ "watchdog" }, "renew", "autorenew", "autorenewal", "autoextend", "keepalive", "renewal")
foreign({ "owner" }, "token", "id", "identifier", "identity", "value")
foreign({ "url" }, "host", "port", "password", "auth", "user", "username", "db", "database",
  "socket",
  "address", "redis")
foreign({ "servers", "url" }, "hosts", "nodes", "masters", "startupnodes")
foreign({ "prefix" }, "keyprefix", "namespace")
foreign({ "abort_on_loss" }, "abort", "abortonlost")
foreign({ "tls" }, "ssl")

-- option -> the functions that accept it, for messages about an option in the wrong place
local ACCEPTED_BY = {}

local function accepted_by(function_name, ...)
  for _, name in ipairs { ... } do ACCEPTED_BY[name] = function_name end
end

accepted_by("client:with_lock, with_read_lock, with_write_lock, with_fair_lock, lead, semaphore:with_permit "
  .. "and one_by_one:execute", "abort_on_loss")
accepted_by("holdfast.new", "url", "servers", "mode", "restart_guard", "tls", "credentials", "sync", "prefix", "tenant", "driver",
  "grant_lease", "crash_release",
  "connect_timeout", "command_timeout", "sentinel_user", "sentinel_password")
accepted_by("client:lock", "owner", "watchdog", "on_lost", "interruptible", "deadlock_check")
accepted_by("client:lock, client:mutex, client:with_lock and client:one_by_one", "keep")
accepted_by("client:lock, client:with_lock, client:lead, client:semaphore and client:one_by_one", "max_hold")
accepted_by("client:lock, client:with_lock, client:semaphore and client:one_by_one", "max_waiters")
accepted_by("client:one_by_one", "queue")
accepted_by("client:idempotent", "info", "delete_key", "replay", "fingerprint", "keep_on_error")

-- Computes a row of the table of edit distances. An edit adds, drops or changes a letter, or swaps
-- two neighbours.
local function next_row(a, b, i, row, above)
  local new = { [0] = i }
  for j = 1, #b do
    local same = a:byte(i) == b:byte(j)
    new[j] = math.min(row[j - 1] + (same and 0 or 1), row[j] + 1, new[j - 1] + 1)
    local swapped = above and j > 1 and a:byte(i) == b:byte(j - 1) and a:byte(i - 1) == b:byte(j)
    if swapped then new[j] = math.min(new[j], above[j - 2] + 1) end
  end
  return new
end

local function distance(a, b)
  local above, row = nil, {}
  for j = 0, #b do row[j] = j end
  for i = 1, #a do above, row = row, next_row(a, b, i, row, above) end
  return row[#b]
end

-- Returns the key of `known` that `name` misspells, or nil. Allows one edit in names of 3 or 4
-- letters, two in longer ones.
function hints.nearest(name, known)
  if #name > 64 then return nil end
  local best, best_distance = nil, #name < 3 and 0 or #name < 5 and 1 or 2
  for candidate in pairs(known) do
    local d = distance(name, candidate)
    local first = not best or locale.is_before(candidate, best)
    if d < best_distance or d == best_distance and first then
      best, best_distance = candidate, d
    end
  end
  return best
end

local function foreign_names(name, known)
  local list = {}
  for _, ours in ipairs(FOREIGN[locale.lower(name):gsub("[_-]", "")] or {}) do
    if known[ours] then list[#list + 1] = ('"%s"'):format(ours) end
  end
  return #list > 0 and table.concat(list, " or ")
end

-- → the option that was probably meant, quoted | nil
local function likely_option(name, known)
  if type(name) ~= "string" then return nil end
  local names = foreign_names(name, known)
  local near = not names and hints.nearest(name, known)
  return names or near and ('"%s"'):format(near)
end

-- Returns what is wrong with an option that is not one of `known`.
function hints.about(name, known)
  if ACCEPTED_BY[name] then return ("%s is an option of %s"):format(shown(name), ACCEPTED_BY[name]) end
  local intended = likely_option(name, known)
  return "unknown option " .. shown(name) .. (intended and ("; did you mean %s?"):format(intended) or "")
end

return hints
