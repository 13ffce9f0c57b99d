-- Explains in a message why a function does not accept an option: names the function that accepts
-- it, or the option that was probably meant.

local locale = require "holdfast.locale"
local shown = require("holdfast.options").shown

local hints = {}

-- Other libraries' names for holdfast's options, in lower case and without separators.
local FOREIGN = {}

local function add_foreign(ours, ...)
  for _, theirs in ipairs { ... } do FOREIGN[theirs] = ours end
end

add_foreign({ "wait", "command_timeout" }, "timeout")
add_foreign({ "wait" }, "retry", "retries", "retrycount", "retrydelay", "retryinterval", "retryjitter",
  "retrytimes",
  "waittime", "maxwait", "blocking", "blockingtimeout", "acquiretimeout", "step", "ratio",
  "maxstep")
add_foreign({ "expire", "lease" }, "ttl", "expire", "expires", "expiry", "expiration", "exptime", "ex",
  "px")
add_foreign({ "lease" }, "leasetime", "locktimeout", "locktime", "duration")
add_foreign({ "watchdog" }, "renew", "autorenew", "autorenewal", "autoextend", "keepalive", "renewal")
add_foreign({ "owner" }, "token", "id", "identifier", "identity", "value")
add_foreign({ "url" }, "host", "port", "password", "auth", "user", "username", "db", "database",
  "socket",
  "address", "redis")
add_foreign({ "servers", "url" }, "hosts", "nodes", "masters", "startupnodes")
add_foreign({ "prefix" }, "keyprefix", "namespace")
add_foreign({ "abort_on_loss" }, "abort", "abortonlost")
add_foreign({ "tls" }, "ssl")

-- option -> the functions that accept it, for messages about an option in the wrong place
local ACCEPTED_BY = {}

local function add_accepted(function_name, ...)
  for _, name in ipairs { ... } do ACCEPTED_BY[name] = function_name end
end

add_accepted("client:with_lock, with_read_lock, with_write_lock, with_fair_lock, lead, semaphore:with_permit "
  .. "and one_by_one:execute", "abort_on_loss")
add_accepted("holdfast.new", "url", "servers", "mode", "restart_guard", "tls", "credentials", "sync", "prefix", "tenant", "driver",
  "grant_lease", "crash_release",
  "connect_timeout", "command_timeout", "sentinel_user", "sentinel_password")
add_accepted("client:lock", "owner", "watchdog", "on_lost", "interruptible", "deadlock_check")
add_accepted("client:lock, client:mutex, client:with_lock and client:one_by_one", "keep")
add_accepted("client:lock, client:with_lock, client:lead, client:semaphore and client:one_by_one", "max_hold")
add_accepted("client:lock, client:with_lock, client:semaphore and client:one_by_one", "max_waiters")
add_accepted("client:one_by_one", "queue")
add_accepted("client:idempotent", "info", "delete_key", "replay", "fingerprint", "keep_on_error")

-- Computes row `i` of the table of edit distances. An edit adds, drops or changes a letter, or
-- swaps two neighbours. `row` and `above`: the rows i - 1 and i - 2.
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

local function edit_distance(a, b)
  local above, row = nil, {}
  for j = 0, #b do row[j] = j end
  for i = 1, #a do above, row = row, next_row(a, b, i, row, above) end
  return row[#b]
end

-- Returns the key of `known` that `name` misspells, or nil. Allows one edit in a name of 3 or 4
-- letters, and two in a longer one.
function hints.nearest(name, known)
  if #name > 64 then return nil end
  local best, best_distance = nil, #name < 3 and 0 or #name < 5 and 1 or 2
  for candidate in pairs(known) do
    local distance = edit_distance(name, candidate)
    local is_first = not best or locale.is_before(candidate, best)
    if distance < best_distance or distance == best_distance and is_first then
      best, best_distance = candidate, distance
    end
  end
  return best
end

local function translate(name, known)
  local list = {}
  for _, ours in ipairs(FOREIGN[locale.lower(name):gsub("[_-]", "")] or {}) do
    if known[ours] then list[#list + 1] = ('"%s"'):format(ours) end
  end
  return #list > 0 and table.concat(list, " or ")
end

-- → the option that was probably meant, quoted | nil
local function guess_option(name, known)
  if type(name) ~= "string" then return nil end
  local names = translate(name, known)
  local nearest = not names and hints.nearest(name, known)
  return names or nearest and ('"%s"'):format(nearest)
end

-- Returns what is wrong with an option that is not in `known`.
function hints.explain(name, known)
  if ACCEPTED_BY[name] then return ("%s is an option of %s"):format(shown(name), ACCEPTED_BY[name]) end
  local intended = guess_option(name, known)
  return "unknown option " .. shown(name) .. (intended and ("; did you mean %s?"):format(intended) or "")
end

return hints
