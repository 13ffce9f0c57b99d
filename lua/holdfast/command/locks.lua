-- Finds the locks on a server with SCAN, and reads them. Never changes a lock.
--
-- A lock is a hash with a TTL and one field, owner -> count. Another program's hash may look the
-- same. A hash whose owner is not of the form <uuid>:<n> therefore counts as a lock only if the key
-- has a fencing counter or a queue. A mutex (SET NX PX) is a string <uuid>:<n>. A read/write lock
-- is a hash with the field `mode`. A semaphore is a number without a TTL; SCAN finds the key with
-- the leases of its permits. A latch is also a number; it is found by its waiters. A finished job's
-- record is listed under the job's key, with `done` and done_ttl.
--
-- An entry is the state of one of these keys on the server: { key, kind, held, owner, holds, ttl,
-- token, waiters, mutex, clock, waits, held_for }. A read/write lock also has mode and readers. A
-- semaphore has permits and available, and no owner; its holds are the permits in use. An entry of
-- counts.read has a count, but no owner, holds or times.
--
-- Times are seconds by the server's clock; `clock` is its time when the entry was read. `waits` is
-- how long the first waiter had waited by then, `held_for` how long the owner had held the lock.
-- Each is nil if the time is not known, or if there is no waiter or no owner.

local core = require "holdfast.core"
local counts = require "holdfast.command.counts"
local driver = require "holdfast.driver"
local identity = require "holdfast.command.identity"
local kinds = require "holdfast.command.kinds"
local output = require "holdfast.command.output"
local records = require "holdfast.command.records"
local locale = require "holdfast.locale"
local observed = require "holdfast.observed"
local pages = require "holdfast.pages"
local replies = require "holdfast.replies"
local texts = require "holdfast.text"

local locks = {}

local PAGE_SIZE = 500 -- keys requested per SCAN
local MAX_OWNER_SIZE = 255
local prefixes = core.wire.prefixes
local LIST, QUEUE, COUNTER = prefixes.list, prefixes.queue, prefixes.counter
local UUID_OWNER = "^%x%x%x%x%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:%-?%d[%d.]*$"

local function command(client, ...)
  return replies.command(client, { ... })
end

-- ---- finding ----

local Scan = {}
Scan.__index = Scan

-- a key's type -> function that reads a key of this type
-- → the entry | false or nil if the key is not a held lock or a record | nil, message, code if it
-- cannot be read
local entry_at

-- Creates a scan for keys of this type that match `pattern`. The scan runs in steps, node by node.
-- In a quorum, a lock is found on any server, and read from a majority.
local function new_scan(client, pattern, key_type)
  return setmetatable({
    client = client, quorum = core.client.is_quorum(client), pattern = pattern or "*",
    type = key_type, entry_at = entry_at[key_type], cursor = "0", nodes_left = {},
  }, Scan)
end

-- Starts with the first node.
function Scan:begin()
  local nodes, message, code = replies.nodes(self.client)
  if not nodes then return nil, message, code end
  self.nodes_left, self.ended, self.unread_in_round = nodes, false, 0
  self.skips_left = self.quorum and math.floor((#nodes - 1) / 2) or 0
  return true
end

-- Reads a page; before Redis 6, without TYPE. If a page had to be reduced to fit, the next page may
-- be twice as large.
function Scan:read_page()
  local limit = self.count or PAGE_SIZE
  local reply, message, code, last_count = pages.scan(self.client, self.nodes_left[1], self.cursor,
    self.pattern, self.type, math.min(limit, self.max_page_size or limit))
  self.max_page_size = last_count * 2
  if reply or code ~= "server" or not self.type then return reply, message, code end
  self.type = nil
  return self:read_page()
end

-- Returns why the hash that was read as `entry` is not a lock, or nil. `fields`: its number of
-- fields, or nil if not known; 0 if it was deleted after it was read.
local function why_not_lock(entry, fields)
  if not kinds[entry.kind].has_mode and fields and fields > 1 then
    return ("it has %d fields"):format(fields)
  end
  if entry.ttl == math.huge then return "it has no TTL" end
  if entry.holds < 1 then return "it does not contain a hold count" end
end

-- Returns whether this hash is certainly a lock, not another program's data that looks like a lock.
local function is_surely_lock(entry)
  return entry.mode or entry.owner:find(UUID_OWNER) or entry.token or entry.waiters > 0
end

local function is_read_write(client, key)
  local mode = not core.client.is_quorum(client) and command(client, "HGET", key, "mode")
  return mode == "read" or mode == "write" or type(mode) == "string" and mode:find("^drain:") ~= nil
end

-- Returns the name of the queue for a lock of this kind.
local function queue_name(key, kind)
  return core.wire.names(kinds[kind].core_kind, key).queue
end

-- Returns whether the key is a fair lock with waiters. A fair lock without waiters looks like any
-- other lock.
local function is_fair(client, key)
  return not core.client.is_quorum(client)
    and replies.command_for_lock(client, key, "EXISTS", queue_name(key, "fair")) == 1
end

-- → the hash's number of fields (1 for a running guard, whose second field is a fingerprint) | nil,
-- message, code
local function count_fields(client, key, node)
  local fields, message, code = replies.command(client, { "HLEN", key }, node)
  if fields ~= 2 then return fields, message, code end
  return type(replies.command(client, { "HGET", key, "print" }, node)) == "string" and 1 or 2
end

local function lock_at(client, key, node)
  local fields, message, code = count_fields(client, key, node)
  if not fields or fields == 0 then return nil, message, code end
  local is_plain_lock = fields == 1
  if not is_plain_lock and not is_read_write(client, key) then return false end
  local entry
  entry, message, code = locks.read(client, key, is_plain_lock and "lock" or "read_write")
  if not entry or not entry.held then return nil, message, code end
  return not why_not_lock(entry, fields) and is_surely_lock(entry) and entry
end

local function record_at(client, name)
  local key = records.key_of(name)
  local ttl = key and records.ttl(client, key)
  return ttl and { key = key, kind = "record", done = true, mutex = false, done_ttl = ttl, waiters = 0 }
end

local function hash_at(client, name, node)
  local record = record_at(client, name)
  if record then return record end
  return lock_at(client, name, node)
end

-- Skips fencing counters without sending a command, because most strings on a server with locks are
-- counters.
local function mutex_at(client, key, node)
  if key:sub(1, #COUNTER) == COUNTER then return false end
  local size, message, code = replies.command(client, { "STRLEN", key }, node)
  if not size or size == 0 then return nil, message, code end
  if size < 38 or size > MAX_OWNER_SIZE then return false end
  local entry
  entry, message, code = locks.read(client, key, "mutex")
  if not entry or not entry.held then return nil, message, code end
  return entry.owner:find(UUID_OWNER) and entry or false
end

-- A number that has no leases, tokens or queue is not a semaphore.
-- → the entry | nil if the key is not a semaphore | nil, message, code
local function read_semaphore(client, key)
  local free, message, code = command(client, "GET", key)
  if not free then return nil, message, code end
  if type(free) ~= "string" or not free:find("^%-?%d+$") then return nil end
  local ttl, why, ttl_code = command(client, "PTTL", key)
  if ttl ~= -1 then return nil, why, ttl_code end
  local entry
  entry, message, code = locks.read(client, key, "semaphore")
  if not entry then return nil, message, code end
  return (entry.held or entry.token or entry.waiters > 0) and entry or nil
end

-- Returns the lock keys for which a queue or a set of leases may have been named with `tag`: the
-- key in the tag's braces, or the tag itself if the key contains braces.
local function keys_of(tag)
  local keys = { tag:match("^{([^{]+)}$") }
  if tag:find("{", 1, true) then keys[#keys + 1] = tag end
  return keys
end

local function semaphore_at(client, name)
  for _, key in ipairs(keys_of(name:match("^(.*):timeout$") or "")) do
    local entry, message, code = read_semaphore(client, key)
    if entry and entry.held then return entry end
    if code and not locks.concerns_single_key(message, code) then return nil, message, code end
  end
end

-- Finds a fair lock by its waiters in Redisson's list. The scan for hashes finds it as a plain
-- lock.
local function fair_at(client, name, _, known)
  for _, key in ipairs(keys_of(name:sub(#LIST + 1))) do
    if not (known and known[key] and kinds[known[key].kind].found_as) then
      local entry, message, code = locks.read(client, key, "fair")
      if entry and entry.held then
        entry.scanned_name = key
        return entry
      end
      if code and not locks.concerns_single_key(message, code) then return nil, message, code end
    end
  end
end

entry_at = { hash = hash_at, string = mutex_at, zset = semaphore_at, list = fair_at }

-- Skips a quorum's server that does not reply, if a majority replies. → whether it was skipped
function Scan:skip()
  if #self.nodes_left == 0 or self.skips_left == 0 then return false end
  self.skips_left, self.cursor = self.skips_left - 1, "0"
  table.remove(self.nodes_left, 1)
  self.ended = #self.nodes_left == 0
  return true
end

-- Counts names that were left out. One round's count remains valid until the next round ends or
-- exceeds it.
function Scan:count_unread(name_count)
  self.unread_in_round = self.unread_in_round + name_count
  self.unread = self.ended and self.unread_in_round
    or math.max(self.unread_in_round, self.unread or 0)
end

-- Runs one step, and sets self.ended after the last one. → names of keys that may be locks | nil,
-- message, code
function Scan:names()
  local reply, message, code = #self.nodes_left > 0, nil, nil
  if not reply then reply, message, code = self:begin() end
  if reply then reply, message, code = self:read_page() end
  if not reply and self:skip() then return {} end
  if not reply then return nil, message, code end
  self.node = self.quorum and self.nodes_left[1] or nil
  self.cursor = reply[1]
  if self.cursor == "0" then table.remove(self.nodes_left, 1) end
  self.ended = #self.nodes_left == 0
  self:count_unread(reply[3] or 0)
  return reply[2]
end

-- Reads the key with this name. → the same results as the functions in entry_at
function Scan:read(name, known)
  if name == "" then return false end -- no lock has an empty key
  local entry, message, code = self.entry_at(self.client, name, self.node, known)
  if entry then entry.scanned_name = entry.scanned_name or name end
  return entry, message, code
end

-- Codes of failures that concern a single key: it belongs to another program, or this user may not
-- read it.
local SINGLE_KEY_CODES = { conflict = true, denied = true, server = true }

function locks.concerns_single_key(message, code)
  return SINGLE_KEY_CODES[code] or pages.is_too_large(message, code)
end

-- Runs one step. `known`: entries to skip, by the name under which a scan found them (found_as). In
-- a quorum, skips a server that stops replying. → a list of entries, held or done | nil, message,
-- code
function Scan:next(known)
  local names, message, code = self:names()
  if not names then return nil, message, code end
  local found = {}
  for _, name in ipairs(names) do
    local entry = false
    if not (known and known[name]) then entry, message, code = self:read(name, known) end
    local has_failed = entry == nil and code and not locks.concerns_single_key(message, code)
    if has_failed and not self.quorum then return nil, message, code end
    if entry then found[#found + 1] = entry end
  end
  return found
end

-- Restarts the scan at its first step.
function Scan:restart()
  self.cursor, self.nodes_left = "0", {}
end

-- A search for latches and plain semaphores with waiters. Has the methods of a scan with one step.
local CountSearch = { ended = true }
CountSearch.__index = CountSearch

function CountSearch:next(known)
  local found = {}
  local entries, is_incomplete = counts.with_waiters(self.client, self.pattern)
  self.unread = is_incomplete
  for _, entry in ipairs(entries) do
    entry.scanned_name = "count " .. entry.key
    if not (known and known[entry.scanned_name]) and not read_semaphore(self.client, entry.key) then
      found[#found + 1] = entry
    end
  end
  return found
end

-- Adds scans for the names that contain a matching key, with or without braces around it.
local function add_scans(scans, client, pattern, prefix, suffix, key_type)
  if pattern ~= "*" then
    scans[#scans + 1] = new_scan(client, prefix .. "{" .. pattern .. "}" .. suffix, key_type)
  end
  scans[#scans + 1] = new_scan(client, prefix .. pattern .. suffix, key_type)
end

-- Returns scans for all mutexes with a matching key, or for all other locks with a matching key. A
-- quorum has no semaphores, fair locks or latches.
function locks.scans(client, pattern, mutexes)
  pattern = pattern or "*"
  if mutexes then return { new_scan(client, pattern, "string") } end
  if core.client.is_quorum(client) then return { new_scan(client, pattern, "hash") } end
  local scans = {}
  add_scans(scans, client, pattern, LIST, "", "list")
  scans[#scans + 1] = new_scan(client, pattern, "hash")
  add_scans(scans, client, pattern, "", ":timeout", "zset")
  scans[#scans + 1] = setmetatable({ client = client, pattern = pattern }, CountSearch)
  return scans
end

-- Creates the scans for the status page's and `holdfast top`'s rounds. A quorum has no queues or
-- latches. → scans for queues; scans for held locks, with mutexes if `mutexes` is set; the search
-- for latches and plain semaphores, or nil
function locks.rounds(client, pattern, mutexes)
  local queues, held = {}, { new_scan(client, pattern, "hash") }
  if mutexes then held[2] = new_scan(client, pattern, "string") end
  if core.client.is_quorum(client) then return queues, held end
  -- The pattern matches both QUEUE and LIST, by their 1st and 15th characters, because the server
  -- skips other keys faster than with "*_queue:*".
  if pattern == "*" then
    queues[1] = new_scan(client, "[hr]" .. ("?"):rep(13) .. "[:q]*")
  else
    queues[1] = new_scan(client, "[hr]*_queue:{" .. pattern .. "}")
    queues[2] = new_scan(client, QUEUE .. ":" .. pattern)
    queues[3] = new_scan(client, LIST .. pattern)
  end
  add_scans(held, client, pattern, "", ":timeout", "zset")
  return queues, held, setmetatable({ client = client, pattern = pattern }, CountSearch)
end

-- → a list of the keys whose queue may have this name, whether the queue is Redisson's list for a
-- fair lock
function locks.keys_for_queue(name)
  if name:sub(1, #LIST) == LIST then return keys_of(name:sub(#LIST + 1)), true end
  return { core.wire.key_of_queue(name) }, false
end

local function add_all(scan, list, seen)
  repeat
    local found, message, code = scan:next()
    if not found then return nil, message, code end
    for _, entry in ipairs(found) do
      local id = (entry.done and "done " or "held ") .. entry.key
      if not seen[id] then list[#list + 1] = entry end
      seen[id] = true
    end
  until scan.ended
  return true
end

-- Returns a message about what the scans could not read, or nil.
function locks.describe_unread(scans)
  local names, channels = 0, false
  for _, scan in ipairs(scans) do
    if scan.unread == true then channels = true else names = names + (scan.unread or 0) end
  end
  local list = {}
  if names > 0 then list[1] = texts.plural(names, "name") .. ", because the names together are larger than 4 MiB" end
  if channels then list[#list + 1] = "latches, because the list of channels is larger than 4 MiB" end
  return #list > 0 and "left out: " .. table.concat(list, "; ") or nil
end

-- → all entries with a matching key, sorted by key; a message about what was left out, or nil
-- | nil, message, code
function locks.all(client, pattern, mutexes)
  local list, seen = {}, {}
  local scans = locks.scans(client, pattern, mutexes)
  if pattern and not mutexes then
    scans[#scans + 1] = new_scan(client, records.name(pattern), "hash")
  end
  for _, scan in ipairs(scans) do
    local ok, message, code = add_all(scan, list, seen)
    if not ok then return nil, message, code end
  end
  table.sort(list, function(a, b)
    if a.key ~= b.key then return locale.is_before(a.key, b.key) end
    return not a.done and b.done == true
  end)
  return list, locks.describe_unread(scans)
end

-- ---- reading one lock ----

-- Returns a handle that reads a key of this kind.
local function handle(client, key, kind)
  return driver.reader(client, key, kinds[kind].core_kind)
end

-- → the entry, held or free | nil, message, code
function locks.read(client, key, kind)
  if kinds[kind].counts then
    return counts.read(client, key) or { key = key, kind = kind, waiters = 0, held = false }
  end
  local entry, message, code = driver.lock.info(handle(client, key, kind))
  if not entry then return nil, message, code end
  entry.key, entry.kind, entry.held = key, kind, entry.owner ~= nil
  entry.mutex = kinds[kind].is_mutex == true
  entry.held_for = observed.held_for(entry, core.client.is_quorum(client))
  if entry.free then
    entry.held, entry.available, entry.permits = entry.holds > 0, entry.free,
      entry.holds + entry.free
  elseif kinds[kind].has_mode and entry.held then
    entry.mode = entry.owner:find(":write$") and "write" or "read"
  end
  return entry
end

-- Returns the key's kind and, for a semaphore or a number, its entry. TYPE fails with several
-- servers, so the key is then read as a lock.
local function kind_of(client, key)
  local key_type = command(client, "TYPE", key)
  if not key_type then
    local code = select(3, locks.read(client, key, "lock"))
    return code == "conflict" and "mutex" or "lock"
  end
  if key_type == "hash" and is_read_write(client, key) then return "read_write" end
  if key_type ~= "string" then return is_fair(client, key) and "fair" or "lock" end
  local entry = read_semaphore(client, key)
  if entry then return "semaphore", entry end
  entry = counts.read(client, key)
  return entry and entry.kind or "mutex", entry
end

-- Returns whether to show the entry: a held lock, or a latch or plain semaphore with waiters.
function locks.is_shown(entry)
  local row = kinds[entry.kind]
  if row.is_string and not row.is_mutex then return false end
  return entry.held and (entry.waiters > 0 or not row.counts)
end

-- Returns whether an acquire (of one permit, for a semaphore) would have to wait.
function locks.is_taken(entry)
  if entry.permits then return entry.available < 1 end
  return entry.held
end

local function not_a_lock(key, kind, why)
  return nil, ('"%s" holds a %s that is not a lock: %s'):format(key, kind, why), "conflict"
end

-- Reads a key of any kind. Fails with "conflict" if the key is not a lock.
-- → the entry, a handle for the lock | nil, message, code
function locks.inspect(client, key)
  local kind, entry = kind_of(client, key)
  local message, code
  if not entry then entry, message, code = locks.read(client, key, kind) end
  if not entry then return nil, message, code end
  local is_hash = entry.owner and not entry.mutex
  local fields = is_hash and not kinds[kind].has_mode and count_fields(client, key) or nil
  local why = is_hash and why_not_lock(entry, fields)
  if why then return not_a_lock(key, "hash", why) end
  if entry.mutex and entry.held and not entry.owner:find(UUID_OWNER) then
    entry.kind, entry.mutex = "string", false
  end
  return entry, not kinds[kind].counts and handle(client, key, kind) or nil
end

-- Calls inspect for a caller that is going to break the lock. A string may be another program's
-- mutex, but counts as a mutex only if `string_is_mutex` is set.
function locks.inspect_to_break(client, key, string_is_mutex)
  local entry, lock, code = locks.inspect(client, key)
  if entry and kinds[entry.kind].counts and not kinds[entry.kind].removes then
    if string_is_mutex then
      return locks.read(client, key, "mutex"), handle(client, key, "mutex")
    end
    return not_a_lock(key, "string",
      "its value is a number; use --mutex for a mutex, or `holdfast latch delete` for a latch")
  end
  if not entry or not entry.owner then return entry, lock, code end
  if kinds[entry.kind].is_string and not entry.mutex and not string_is_mutex then
    return not_a_lock(key, "string", "its value is not an owner id; use --mutex to treat the key as a mutex")
  end
  if not kinds[entry.kind].is_string and not is_surely_lock(entry) then
    return not_a_lock(key, "hash",
      "its field is not an owner id, and the key has no fencing counter or queue")
  end
  return entry, lock
end

local function read_list(client, key, limit, name)
  local waiters = {}
  local owners = pages.retry_smaller(limit, function(count)
    return replies.command_for_lock(client, key, "LRANGE", name, 0, count - 1)
  end)
  for i, owner in ipairs(owners or {}) do waiters[i] = { owner = owner, place = i } end
  return waiters
end

-- Returns the first waiters for an entry from locks.read: { { owner, place, score, waits,
-- wait_is_lower_bound }, ... }. `waits`: the seconds that the waiter had waited when the entry was
-- read; nil in Redisson's list. `wait_is_lower_bound`: whether the waiter may have waited longer.
function locks.waiters(client, entry, limit)
  local key, kind = entry.key, entry.kind
  if kinds[kind].counts then return {} end
  local name = queue_name(key, kind)
  if core.kinds[kinds[kind].core_kind].uses_list then return read_list(client, key, limit, name) end
  local reply = pages.retry_smaller(limit, function(count)
    return replies.command_for_lock(client, key, "ZRANGEBYSCORE", name, "(0", "+inf", "WITHSCORES", "LIMIT", 0, count)
  end)
  local waiters = {}
  for i = 1, type(reply) == "table" and #reply or 0, 2 do
    local queued = core.wire.read_waiter(reply[i])
    local owner = queued and queued.owner or reply[i]
    local score = locale.number(reply[i + 1])
    local waits, is_lower_bound = observed.waits(score, entry.clock)
    waiters[#waiters + 1] = {
      owner = owner, place = #waiters + 1, score = score, waits = waits,
      wait_is_lower_bound = is_lower_bound,
    }
  end
  return waiters
end

-- ---- formatting ----

-- Returns a function (owner) → { host, pid, name } that reads each client's name only once.
function locks.namer(client)
  local known = {}
  return function(owner)
    local uuid = owner:sub(1, 36)
    if known[uuid] == nil then known[uuid] = identity.read(client, owner) or false end
    return known[uuid] or nil
  end
end

function locks.seconds(ttl)
  if not ttl then return "-" end
  return ttl == math.huge and "none" or locale.decimal("%.1f", ttl) .. " s"
end

-- Formats a duration as "for 3 s"; nil for nil. `is_lower_bound`: whether it may be longer.
function locks.for_duration(seconds, is_lower_bound)
  return seconds and ("for %s%s"):format(is_lower_bound and "at least " or "", texts.duration(seconds))
end

-- Formats a duration for a table.
function locks.duration(seconds)
  return seconds and texts.duration(seconds) or "-"
end

function locks.token(token)
  return token and ("%.0f"):format(token) or "-"
end

-- Describes how a read/write lock is held. Returns "" for any other lock.
function locks.mode_text(entry, prefix, suffix)
  if not entry.mode then return "" end
  local readers = entry.readers or 0
  local holders = entry.mode == "write" and "one writer" or readers == 1 and "one reader"
    or ("%d readers"):format(readers)
  return prefix .. holders .. suffix
end

-- Describes the holder, whose name is in `who`; for a semaphore, describes the permits in use.
function locks.holder_text(entry, who)
  if entry.count then return counts.describe(entry) end
  if entry.permits then return ("%d of %s"):format(entry.holds, texts.plural(entry.permits, "permit")) end
  local holder = output.name(identity.text(who) or entry.owner)
  return holder .. locks.mode_text(entry, " (", ")")
end

-- Returns the fields of an entry for json.object.
function locks.fields(entry, who)
  return {
    { "key", entry.key }, { "held", entry.held == true }, { "done", entry.done },
    { "mutex", entry.mutex },
    { "mode", entry.mode }, { "readers", entry.mode and entry.readers },
    { "permits", entry.permits }, { "available", entry.available },
    { "owner", entry.owner },
    { "host", who and who.host }, { "pid", who and who.pid }, { "name", who and who.name },
    { "kind", entry.kind }, { "count", entry.count },
    { "holds", entry.holds }, { "held_for", entry.held_for }, { "ttl", entry.ttl },
    { "token", entry.token }, { "waiters", entry.waiters }, { "waits", entry.waits },
    { "done_ttl", entry.done_ttl },
  }
end

return locks
