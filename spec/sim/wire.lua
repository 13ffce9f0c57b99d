-- What the simulator knows about the protocol: names, arguments of programs, members of queues,
-- messages. No other file in spec/sim parses them.

local wire = {}

-- Returns whether the member of a queue is the record of clients that do not use the queue.
function wire.is_record(member)
  return member:find("^1f ") ~= nil
end

-- ---- names ----

-- Like Redisson, uses a key with a hash tag as it is.
local function derived(prefix, key)
  return prefix .. (key:find("{", 1, true) and key or "{" .. key .. "}")
end

function wire.counter_of(key)
  return derived("redisson_lock_token:", key)
end

function wire.releases_of(key)
  return derived("redisson_lock__channel:", key)
end

function wire.read_write_releases_of(key)
  return derived("redisson_rwlock:", key)
end

function wire.queue_of(key)
  return derived(key:find("{", 1, true) and "holdfast_queue::" or "holdfast_queue:", key)
end

-- The name of Redisson's list of the waiters for a fair lock; the names of their timeouts follow.
function wire.list_of(key)
  return derived("redisson_lock_queue:", key)
end

function wire.timeouts_of(key)
  return derived("redisson_lock_timeout:", key)
end

-- The name of the note of a call of a latch.
function wire.note_of(key, uuid, number)
  return ("%s:%s:%d"):format(derived("holdfast_call:", key), uuid, number)
end

-- The name of the key that contains the record of the turns at a plain semaphore.
function wire.turns_of(key)
  return wire.permits_channel_of(key) .. ":turns"
end

-- The name of the leases of a semaphore's permits; the channel is that of a plain semaphore, too.
function wire.leases_of(key)
  return derived("", key) .. ":timeout"
end

function wire.permits_channel_of(key)
  return derived("redisson_sc:", key)
end

-- Redisson puts every key into braces here.
function wire.latch_channel_of(key)
  return ("redisson_countdownlatch__channel__{%s}"):format(key)
end

-- The channel on which a client receives its grants.
function wire.channel_of(client)
  return "holdfast_grant:" .. client
end

-- ---- owners ----

-- Returns whether the owner is a holdfast client; false for shared owners.
function wire.is_ours(owner)
  return owner:find("^%x+%-%x+%-8") ~= nil
end

-- Returns whether the owner keeps its lock for the callers of its client.
function wire.keeps(owner)
  return owner:find("^%x+%-%x+%-8[%x-]+:0%d") ~= nil
end

-- The uuid of the owner's client.
function wire.client_of_owner(owner)
  return owner:sub(1, 36)
end

-- Returns whether this is the owner, or the copy of it that a server of a quorum got later:
-- "<owner>.<copy>".
function wire.is_copy(text, owner)
  return text == owner or text:sub(1, #owner + 1) == owner .. "."
    and text:find("^%d+$", #owner + 2) ~= nil
end

-- The owner without the number of a copy.
function wire.origin_of(owner)
  return owner:find("^%x+%-%x+%-8") and owner:match("^[^.]+") or owner
end

-- Returns whether this is an owner of permits: "<uuid>:<number>", or "<uuid>:<number>*<count>".
function wire.is_permit_owner(text)
  return text:find("^%x+%-%x+%-8[%x-]+:%d+%*?%d*$") ~= nil
end

local function bytes(number, size)
  local text = ""
  for _ = 1, size do
    text, number = string.char(number % 256) .. text, math.floor(number / 256)
  end
  return text
end

-- The ids of the owner's permits.
function wire.ids_of(owner)
  local head, tail, number, count = owner:match("^(%x%x%x%x%x%x%x%x).*(%x%x%x%x%x%x%x%x):(%d+)%*?(%d*)$")
  local stem, ids = "hf" .. bytes(tonumber(head, 16), 4) .. bytes(tonumber(tail, 16), 4)
    .. bytes(tonumber(number), 4), {}
  for i = 1, tonumber(count) or 1 do ids[i] = stem .. bytes(i, 2) end
  return ids
end

-- Returns whether the permit is one of the client's.
function wire.is_permit_of(id, uuid)
  return id:sub(1, 10) == wire.ids_of(uuid .. ":1")[1]:sub(1, 10)
end

-- ---- members of queues: "1<kind><client>:<number>:<token ttl>[ <owner>]" ----

function wire.client_of(member)
  return member:sub(3, 38)
end

function wire.owner_of(member)
  local kind, owner, shared = member:match("^1(%l)([%x-]+:%d+):%d+ ?(.*)$")
  if kind == "w" then return owner .. ":write" end
  return shared ~= "" and shared or owner
end

-- Returns whether the owner, or the waiter, is a writer of a read/write lock.
function wire.writes(text)
  return text:find(":write$") ~= nil or text:find("^1w") ~= nil
end

-- The key in the form in which other names contain it.
function wire.tag_of(key)
  return derived("", key)
end

-- The name of the key with the lease of a read hold.
function wire.hold_key(key, owner, number)
  return ("%s:%s:rwlock_timeout:%d"):format(wire.tag_of(key), owner, number)
end

-- The number of the wait: unique in its client.
function wire.wait_of(member)
  return member:match("^1%l[%x-]+:(%d+)")
end

-- ---- messages ----

wire.MESSAGES = {
  grant = true, grants = true, turn = true, recheck = true, wish = true, subscribe = true,
}

-- → wait, key of a grant | nil
function wire.grant_in(message)
  return message:match("^1 grant %l (%d+) %S+ [%d-]+ %d+ (.*)$")
end

-- → the numbers of the waits to which these bytes of a server grant a lock; an incomplete message
-- does not count
function wire.grants_in(text)
  local waits = {}
  for wait in text:gmatch("\r\n1 grant %l (%d+) [^\r\n]*\r\n") do waits[#waits + 1] = wait end
  return waits
end

-- → the number of the owner in a wish | nil
function wire.wish_in(message)
  return message:match("^1 wish (%d+)$")
end

-- ---- arguments of programs: { "EVALSHA", sha, count of keys, keys …, values … } ----

local WITH_QUEUE = {}
for _, name in ipairs {
  "acquire", "begin", "release", "leave", "force", "complete", "acquire_all", "release_all",
} do
  WITH_QUEUE[name], WITH_QUEUE["mutex_" .. name] = true, true
end

wire.ACQUIRES = { acquire = true, mutex_acquire = true, begin = true, rw_acquire = true,
  fair_acquire = true, permit_acquire = true }

-- → a program's reply, with { 1, token, 0 } for the short form of that
function wire.spelled_out(name, reply)
  local token = wire.ACQUIRES[(name:gsub("^sharded_", ""))] and type(reply) == "number" and reply >= 0
  return token and { 1, reply, 0 } or reply
end

function wire.owner_in(args)
  return args[4 + tonumber(args[3])]
end

-- → the member in an acquire's arguments; "" if a brief call leaves it out
function wire.member_in(args)
  return args[10 + tonumber(args[3])] or ""
end

-- Returns whether an acquire is queued. A first one, which may be late, has no place to keep.
function wire.waits(args)
  return wire.member_in(args) ~= ""
end

-- → the number of the wait that is queued | nil
function wire.wait_in(args)
  local member = wire.member_in(args)
  return member ~= "" and wire.wait_of(member) or nil
end

-- → how many holds the owner has according to an acquire of a lock
function wire.from_in(args)
  local at = 4 + tonumber(args[3])
  return args[at + 3] and args[at + 2] or "0"
end

-- Programs for several locks: where the owner of each is.
local OWNER_AT = {
  acquire_all = function(i) return 2 * i + 3 end,
  release_all = function(i) return 3 * i end,
}

-- Calls each(context, lock, queue, owner) for each lock of a program that works on queues.
function wire.each_lock(name, args, each, context)
  if not WITH_QUEUE[name] then return end
  local count, at = tonumber(args[3]), OWNER_AT[name]
  for i = 1, count / 4 do
    local owner = at and args[3 + count + at(i)] or wire.owner_in(args)
    each(context, args[4 * i], args[4 * i + 2], owner)
  end
end

-- Calls each(key, owner) for each renewal.
function wire.each_renewal(args, each, keys_each)
  local count, step = tonumber(args[3]), keys_each or 1
  for i = 1, count / step do each(args[3 + step * (i - 1) + 1], args[3 + count + 2 * i - 1]) end
end

-- Returns whether the arguments name the member or owner.
function wire.names(args, text)
  for i = 4, #args do
    if args[i] == text then return true end
  end
  return false
end

return wire
