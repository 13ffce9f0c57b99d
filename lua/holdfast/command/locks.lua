-- Reads the locks of a server from outside. SCAN finds them; nothing here changes one.
--
-- A lock is a hash with a TTL and one field, owner -> count. Another program's hash may look so
-- too: an owner that is not of the form <uuid>:<n> counts only if a fencing counter or a queue
-- stands beside it. A mutex (SET NX PX) is a string <uuid>:<n>. A read/write lock is a hash with
-- the field `mode`. A semaphore is a number without a TTL; the leases of its permits stand beside
-- it, and SCAN finds these. A latch is one as well; it is found by those that wait for it. The
-- record of a job that is done is listed by the job's key, with `done` and done_ttl.
--
-- An entry is the state of one of them on the server: { key, kind, held, owner, holds, ttl, token,
-- waiters, mutex, clock, waits, held_for }, of a read/write lock also mode and readers, of a
-- semaphore permits and available, without an owner: holds are its permits that are taken. What
-- counts.read returns has a count, and neither an owner nor holds nor times.
--
-- Times are seconds of the server's clock, which was `clock` when the entry was read: for `waits`
-- the first waiter had waited then, for `held_for` the owner had held the lock. nil: not known, or
-- nobody.

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

local PAGE = 500
local OWNER_SIZE = 255
local prefixes = core.wire.prefixes
local LIST, QUEUE, COUNTER = prefixes.list, prefixes.queue, prefixes.counter
local UUID_OWNER = "^%x%x%x%x%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:%-?%d[%d.]*$"

local function command(client, ...)
  return replies.command(client, { ... })
end

local function command_beside(client, key, ...)
  return replies.command(client, { ... }, driver.node_beside(client, key))
end

-- ---- finding ----

local Scan = {}
Scan.__index = Scan

-- For each type of key the function that reads a key of it.
-- → the entry; false if the key is not a lock; nil if it is gone | nil, message, code if it cannot
-- be read
local entry_at

-- Searches for keys of this type whose name matches `pattern`, step by step, on one node after the
-- other. A quorum's lock is found on one of its servers, and read from a majority.
local function scan(client, pattern, key_type)
  return setmetatable({
    client = client, quorum = core.client.is_quorum(client), pattern = pattern or "*",
    type = key_type, entry_at = entry_at[key_type], cursor = "0", left = {},
  }, Scan)
end

-- The nodes to search; those of a cluster are known once it has answered.
function Scan:begin()
  local nodes = core.client.nodes(self.client)
  if #nodes == 0 then
    local answered, message, code = self.client:ping()
    if not answered then return nil, message, code end
    nodes = core.client.nodes(self.client)
  end
  self.left, self.ended, self.no_room = nodes, false, 0
  self.spare = self.quorum and math.floor((#nodes - 1) / 2) or 0
  return true
end

-- SCAN knows TYPE since Redis 6. A page that was smaller than usual is followed by a larger one.
function Scan:page()
  local most = self.count or PAGE
  local reply, message, code, fits = pages.scan(self.client, self.left[1], self.cursor,
    self.pattern, self.type, math.min(most, self.fits or most))
  self.fits = fits * 2
  if reply or code ~= "server" or not self.type then return reply, message, code end
  self.type = nil
  return self:page()
end

-- What keeps the hash that was read as `entry` from being a lock; nil: nothing. Several servers do
-- not report how many fields it has; none: it went after it was read.
local function flaw(entry, fields)
  if not kinds[entry.kind].has_mode and fields and fields > 1 then
    return ("it has %d fields"):format(fields)
  end
  if entry.ttl == math.huge then return "it has no TTL" end
  if entry.holds < 1 then return "it does not contain a hold count" end
end

local function is_ours(entry)
  return entry.mode or entry.owner:find(UUID_OWNER) or entry.token or entry.waiters > 0
end

local function is_read_write(client, key)
  local mode = not core.client.is_quorum(client) and command(client, "HGET", key, "mode")
  return mode == "read" or mode == "write" or type(mode) == "string" and mode:find("^drain:") ~= nil
end

-- The name of the queue of a lock of this kind.
local function queue_name(key, kind)
  return core.wire.names(kinds[kind].of, key).queue
end

-- A fair lock for which nobody waits is like any other.
local function is_fair(client, key)
  return not core.client.is_quorum(client)
    and command_beside(client, key, "EXISTS", queue_name(key, "fair")) == 1
end

-- How many fields the hash has, without the fingerprint that a running guard has beside its owner.
-- → the number | nil, message, code
local function fields_of(client, key, node)
  local fields, message, code = replies.command(client, { "HLEN", key }, node)
  if fields ~= 2 then return fields, message, code end
  return type(replies.command(client, { "HGET", key, "print" }, node)) == "string" and 1 or 2
end

local function lock_at(client, key, node)
  local fields, message, code = fields_of(client, key, node)
  if not fields or fields == 0 then return nil, message, code end
  local is_lock = fields == 1
  if not is_lock and not is_read_write(client, key) then return false end
  local entry
  entry, message, code = locks.read(client, key, is_lock and "lock" or "read_write")
  if not entry or not entry.held then return nil, message, code end
  return not flaw(entry, fields) and is_ours(entry) and entry
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

-- Most strings of a server that has locks are their fencing counters.
local function mutex_at(client, key, node)
  if key:sub(1, #COUNTER) == COUNTER then return false end
  local size, message, code = replies.command(client, { "STRLEN", key }, node)
  if not size or size == 0 then return nil, message, code end
  if size < 38 or size > OWNER_SIZE then return false end
  local entry
  entry, message, code = locks.read(client, key, "mutex")
  if not entry or not entry.held then return nil, message, code end
  return entry.owner:find(UUID_OWNER) and entry or false
end

-- A number that is not a semaphore has neither leases nor tokens nor a queue beside it.
-- → the entry; nil: it is none | nil, message, code
local function semaphore(client, key)
  local free, message, code = command(client, "GET", key)
  if not free then return nil, message, code end
  if type(free) ~= "string" or not free:find("^%-?%d+$") then return nil end
  local ttl, why, code_of_ttl = command(client, "PTTL", key)
  if ttl ~= -1 then return nil, why, code_of_ttl end
  local entry
  entry, message, code = locks.read(client, key, "semaphore")
  if not entry then return nil, message, code end
  return (entry.held or entry.token or entry.waiters > 0) and entry or nil
end

-- The keys that `tag` may mean in a name beside a key: the one in the braces, and the one that has
-- braces itself.
local function keys_of(tag)
  local list = { tag:match("^{([^{]+)}$") }
  if tag:find("{", 1, true) then list[#list + 1] = tag end
  return list
end

local function semaphore_at(client, name)
  for _, key in ipairs(keys_of(name:match("^(.*):timeout$") or "")) do
    local entry, message, code = semaphore(client, key)
    if entry and entry.held then return entry end
    if code and not locks.is_of_key(message, code) then return nil, message, code end
  end
end

-- A lock with waiters in Redisson's list; the scan for hashes finds it as one without.
local function fair_at(client, name, _, known)
  for _, key in ipairs(keys_of(name:sub(#LIST + 1))) do
    if not (known and known[key] and kinds[known[key].kind].found_as) then
      local entry, message, code = locks.read(client, key, "fair")
      if entry and entry.held then
        entry.found_as = key
        return entry
      end
      if code and not locks.is_of_key(message, code) then return nil, message, code end
    end
  end
end

entry_at = { hash = hash_at, string = mutex_at, zset = semaphore_at, list = fair_at }

-- A quorum does without a server that does not answer, as long as a majority does. → whether there
-- is one to skip
function Scan:skip()
  if #self.left == 0 or self.spare == 0 then return false end
  self.spare, self.cursor = self.spare - 1, "0"
  table.remove(self.left, 1)
  self.ended = #self.left == 0
  return true
end

-- What a whole round left out counts until the next one ends, or has left out more.
function Scan:count_unread(names)
  self.no_room = self.no_room + names
  self.unread = self.ended and self.no_room or math.max(self.no_room, self.unread or 0)
end

-- One step. → the names of keys where a lock may be; self.ended when all were seen | nil, message,
-- code
function Scan:names()
  local reply, message, code = #self.left > 0, nil, nil
  if not reply then reply, message, code = self:begin() end
  if reply then reply, message, code = self:page() end
  if not reply and self:skip() then return {} end
  if not reply then return nil, message, code end
  self.node = self.quorum and self.left[1] or nil
  self.cursor = reply[1]
  if self.cursor == "0" then table.remove(self.left, 1) end
  self.ended = #self.left == 0
  self:count_unread(reply[3] or 0)
  return reply[2]
end

-- Reads what has this name. → as the functions of entry_at
function Scan:read(name, known)
  if name == "" then return false end -- no lock has an empty key
  local entry, message, code = self.entry_at(self.client, name, self.node, known)
  if entry then entry.found_as = entry.found_as or name end
  return entry, message, code
end

-- Whether the failure is about one key only: another program has it, or this user may not read it.
local OF_KEY = { conflict = true, denied = true, server = true }

function locks.is_of_key(message, code)
  return OF_KEY[code] or pages.is_too_large(message, code)
end

-- One step. → a list of entries, held or done, without those that are `known` by the name of their
-- key, found_as | nil, message, code; a quorum does without a server that stops answering
function Scan:next(known)
  local names, message, code = self:names()
  if not names then return nil, message, code end
  local found = {}
  for _, name in ipairs(names) do
    local entry = false
    if not (known and known[name]) then entry, message, code = self:read(name, known) end
    local has_failed = entry == nil and code and not locks.is_of_key(message, code)
    if has_failed and not self.quorum then return nil, message, code end
    if entry then found[#found + 1] = entry end
  end
  return found
end

-- The next step is the first one again.
function Scan:restart()
  self.cursor, self.left = "0", {}
end

-- Finds latches as a scan finds locks, in one step.
local Waited = { ended = true }
Waited.__index = Waited

function Waited:next(known)
  local found = {}
  local list, unread = counts.waited(self.client, self.pattern)
  self.unread = unread
  for _, entry in ipairs(list) do
    entry.found_as = "count " .. entry.key
    if not (known and known[entry.found_as]) and not semaphore(self.client, entry.key) then
      found[#found + 1] = entry
    end
  end
  return found
end

-- Scans for names beside a matching key, with or without braces around the key.
local function scan_beside(list, client, pattern, before, behind, key_type)
  if pattern ~= "*" then
    list[#list + 1] = scan(client, before .. "{" .. pattern .. "}" .. behind, key_type)
  end
  list[#list + 1] = scan(client, before .. pattern .. behind, key_type)
end

-- The scans for mutexes, or for all other locks, whose key matches the pattern; a quorum has no
-- semaphores, no fair locks and no latches.
function locks.scans(client, pattern, mutexes)
  pattern = pattern or "*"
  if mutexes then return { scan(client, pattern, "string") } end
  if core.client.is_quorum(client) then return { scan(client, pattern, "hash") } end
  local list = {}
  scan_beside(list, client, pattern, LIST, "", "list")
  list[#list + 1] = scan(client, pattern, "hash")
  scan_beside(list, client, pattern, "", ":timeout", "zset")
  list[#list + 1] = setmetatable({ client = client, pattern = pattern }, Waited)
  return list
end

-- What the status page and `holdfast top` go through in rounds: scans for the names of queues,
-- those for locks that are held, with `mutexes` also for mutexes, and the search for latches. A
-- quorum has no queues and no latches.
function locks.rounds(client, pattern, mutexes)
  local queues, held = {}, { scan(client, pattern, "hash") }
  if mutexes then held[2] = scan(client, pattern, "string") end
  if core.client.is_quorum(client) then return queues, held end
  -- QUEUE and LIST in one, by their first and 15th letters: the server passes over other keys
  -- faster than by "*_queue:*"
  if pattern == "*" then
    queues[1] = scan(client, "[hr]" .. ("?"):rep(13) .. "[:q]*")
  else
    queues[1] = scan(client, "[hr]*_queue:{" .. pattern .. "}")
    queues[2], queues[3] = scan(client, QUEUE .. ":" .. pattern), scan(client, LIST .. pattern)
  end
  scan_beside(held, client, pattern, "", ":timeout", "zset")
  return queues, held, setmetatable({ client = client, pattern = pattern }, Waited)
end

-- The keys whose queue may have this name, a list, and whether it is Redisson's of a fair lock.
function locks.keys_of_queue(name)
  if name:sub(1, #LIST) == LIST then return keys_of(name:sub(#LIST + 1)), true end
  return { core.wire.key_of_queue(name) }, false
end

local function add_all(one, list, seen)
  repeat
    local found, message, code = one:next()
    if not found then return nil, message, code end
    for _, entry in ipairs(found) do
      local id = (entry.done and "done " or "held ") .. entry.key
      if not seen[id] then list[#list + 1] = entry end
      seen[id] = true
    end
  until one.ended
  return true
end

-- What the scans could not read, for people; nil: nothing.
function locks.left_out(scans)
  local names, channels = 0, false
  for _, one in ipairs(scans) do
    if one.unread == true then channels = true else names = names + (one.unread or 0) end
  end
  local list = {}
  if names > 0 then list[1] = ("%d names, because together they are larger than 4 MiB"):format(names) end
  if channels then list[#list + 1] = "latches, because the list of channels is larger than 4 MiB" end
  return #list > 0 and "left out: " .. table.concat(list, "; ") or nil
end

-- → all entries whose key matches the pattern, by key, and what was left out, for people, or nil |
-- nil, message, code
function locks.all(client, pattern, mutexes)
  local list, seen = {}, {}
  local scans = locks.scans(client, pattern, mutexes)
  if pattern and not mutexes then
    scans[#scans + 1] = scan(client, records.key(pattern), "hash")
  end
  for _, one in ipairs(scans) do
    local ok, message, code = add_all(one, list, seen)
    if not ok then return nil, message, code end
  end
  table.sort(list, function(a, b)
    if a.key ~= b.key then return locale.is_before(a.key, b.key) end
    return not a.done and b.done == true
  end)
  return list, locks.left_out(scans)
end

-- ---- reading one ----

-- The library's lock on a key of this kind, without a prefix.
local function handle(client, key, kind)
  return driver.reader(client, key, kinds[kind].of)
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

-- The kind of the key, and the entry of a semaphore or a number. Several servers are not asked for
-- the type of a key, but reply that it is no lock.
local function kind_of(client, key)
  local key_type = command(client, "TYPE", key)
  if not key_type then
    local code = select(3, locks.read(client, key, "lock"))
    return code == "conflict" and "mutex" or "lock"
  end
  if key_type == "hash" and is_read_write(client, key) then return "read_write" end
  if key_type ~= "string" then return is_fair(client, key) and "fair" or "lock" end
  local entry = semaphore(client, key)
  if entry then return "semaphore", entry end
  entry = counts.read(client, key)
  return entry and entry.kind or "mutex", entry
end

-- Whether a view shows it: a latch or a plain semaphore only while somebody waits for it.
function locks.is_shown(entry)
  local row = kinds[entry.kind]
  if row.is_string and not row.is_mutex then return false end
  return entry.held and (entry.waiters > 0 or not row.counts)
end

-- Whether an acquire would have to wait; of a semaphore an acquire of one permit.
function locks.is_taken(entry)
  if entry.permits then return entry.available < 1 end
  return entry.held
end

local function no_lock(key, kind, why)
  return nil, ('"%s" holds a %s that is not a lock: %s'):format(key, kind, why), "conflict"
end

-- As read, of a key of any kind.
-- → the entry, the lock | nil, message, code, also of what stands there and is no lock
function locks.inspect(client, key)
  local kind, entry = kind_of(client, key)
  local message, code
  if not entry then entry, message, code = locks.read(client, key, kind) end
  if not entry then return nil, message, code end
  local is_hash = entry.owner and not entry.mutex
  local why = is_hash and flaw(entry, not kinds[kind].has_mode and fields_of(client, key) or nil)
  if why then return no_lock(key, "hash", why) end
  if entry.mutex and entry.held and not entry.owner:find(UUID_OWNER) then
    entry.kind, entry.mutex = "string", false
  end
  return entry, not kinds[kind].counts and handle(client, key, kind) or nil
end

-- As inspect, for a caller that is going to take it away. Any string may be a mutex of another
-- program; with `take_string` it counts as one.
function locks.inspect_ours(client, key, take_string)
  local entry, lock, code = locks.inspect(client, key)
  if entry and kinds[entry.kind].counts and not kinds[entry.kind].removes then
    if take_string then return locks.read(client, key, "mutex"), handle(client, key, "mutex") end
    return no_lock(key, "string",
      "its value is a number; use --mutex for a mutex, or `holdfast latch delete` for a latch")
  end
  if not entry or not entry.owner then return entry, lock, code end
  if kinds[entry.kind].is_string and not entry.mutex and not take_string then
    return no_lock(key, "string", "its value is not an owner id; use --mutex to treat the key as a mutex")
  end
  if not kinds[entry.kind].is_string and not is_ours(entry) then
    return no_lock(key, "hash",
      "its field is not an owner id, and the key has no fencing counter or queue")
  end
  return entry, lock
end

local function listed(client, key, limit, name)
  local list = {}
  local owners = pages.shrink(limit, function(count)
    return command_beside(client, key, "LRANGE", name, 0, count - 1)
  end)
  for i, owner in ipairs(owners or {}) do list[i] = { owner = owner, place = i } end
  return list
end

-- The first waiters of an entry that locks.read has read. `waits`: for how many seconds each had
-- waited when that was read, nil in a list of Redisson's; at_least: it has waited for longer.
-- → { { owner, place, score, waits, at_least }, ... }
function locks.waiters(client, entry, limit)
  local key, kind = entry.key, entry.kind
  if kinds[kind].counts then return {} end
  local name = queue_name(key, kind)
  if core.kinds[kinds[kind].of].listed then return listed(client, key, limit, name) end
  local reply = pages.shrink(limit, function(count)
    return command_beside(client, key, "ZRANGEBYSCORE", name, "(0", "+inf", "WITHSCORES", "LIMIT", 0, count)
  end)
  local list = {}
  for i = 1, type(reply) == "table" and #reply or 0, 2 do
    local queued = core.wire.read_waiter(reply[i])
    local owner = queued and queued.owner or reply[i]
    local score = locale.number(reply[i + 1])
    local waits, at_least = observed.waits(score, entry.clock)
    list[#list + 1] = {
      owner = owner, place = #list + 1, score = score, waits = waits, at_least = at_least,
    }
  end
  return list
end

-- ---- showing ----

-- Returns a function (owner) → { host, pid, name }, which asks the server once for each client.
function locks.names(client)
  local known = {}
  return function(owner)
    local uuid = owner:sub(1, 36)
    if known[uuid] == nil then known[uuid] = identity.of(client, owner) or false end
    return known[uuid] or nil
  end
end

function locks.seconds(ttl)
  if not ttl then return "-" end
  return ttl == math.huge and "none" or locale.decimal("%.1f", ttl) .. " s"
end

-- For how long, for people; nil: not known. at_least: it is longer.
function locks.span(seconds, at_least)
  return seconds and ("for %s%s"):format(at_least and "at least " or "", texts.duration(seconds))
end

-- The same in a column.
function locks.duration(seconds)
  return seconds and texts.duration(seconds) or "-"
end

function locks.token(token)
  return token and ("%.0f"):format(token) or "-"
end

-- How a read/write lock is held; "" of another.
function locks.mode_text(entry, before, behind)
  if not entry.mode then return "" end
  local readers = entry.readers or 0
  local text = entry.mode == "write" and "one writer" or readers == 1 and "one reader"
    or ("%d readers"):format(readers)
  return before .. text .. behind
end

-- The holder, named by `who`; for a semaphore, the number of permits that are taken.
function locks.holder_text(entry, who)
  if entry.count then return counts.text(entry) end
  if entry.permits then return ("%d of %d permits"):format(entry.holds, entry.permits) end
  local holder = output.name(identity.text(who) or entry.owner)
  return holder .. locks.mode_text(entry, " (", ")")
end

-- The fields of an entry for output.json.
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
