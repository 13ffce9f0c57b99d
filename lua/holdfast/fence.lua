-- Writes that the server carries out only while no later holder of the lock has written to the
-- resource or claimed it. See docs/explanation/fencing.md.

local core = require "holdfast.core"
local driver = require "holdfast.driver"
local error = require("holdfast.compat").error
local lead = require "holdfast.lead"
local locale = require "holdfast.locale"
local locks = require "holdfast.lock"
local loss = require "holdfast.loss"
local options = require "holdfast.options"
local record = require "holdfast.record"
local texts = require "holdfast.text"

local raw, lock_type = driver.lock, core.lock_type
local argument, check_self, notify = options.argument, options.self, loss.notify
local shown = texts.shown

---@class holdfast.fence
local Fence = {}
Fence.__index = Fence
Fence.__name = "holdfast.fence"

local WEEK = 7 * 24 * 3600
local MAX_WORDS = 4000 -- words in one command; a program cannot pass more to the server

---@class holdfast.fence_options
---@field ttl? number seconds that the fence is kept after the last write; math.huge keeps it forever; default 7 days

local fence = { options = { ttl = options.token_ttl } }

-- ---- commands ----

local function first_argument(words) return { words[2] } end
local function first_two_arguments(words) return { words[2], words[3] } end

local function all_arguments(words)
  local keys = {}
  for i = 2, #words do keys[i - 1] = words[i] end
  return keys
end

local function every_other_argument(words)
  local keys = {}
  for i = 2, #words, 2 do keys[#keys + 1] = words[i] end
  return keys
end

local function counted_keys(words)
  local keys = { words[2] }
  for i = 4, math.min(#words, 3 + (locale.number(words[3]) or 0)) do keys[#keys + 1] = words[i] end
  return keys
end

-- name -> function(words) → the keys among them
local KEYS = {}

local function add(keys_of, names)
  for name in names:gmatch("[^ \n]+") do KEYS[name] = keys_of end
end

add(first_argument, [[
  append bitfield decr decrby expire expireat geoadd getdel getex getset hdel hexpire hexpireat
  hgetdel hgetex hincrby hincrbyfloat hmset hpersist hpexpire hpexpireat hset hsetex hsetnx incr
  incrby incrbyfloat linsert lpop lpush lpushx lrem lset ltrim persist pexpire pexpireat pfadd
  psetex restore rpop rpush rpushx sadd set setbit setex setnx setrange spop srem xack xadd xdel
  xtrim zadd zincrby zpopmax zpopmin zrem zremrangebylex zremrangebyrank zremrangebyscore]])
add(first_two_arguments, "copy geosearchstore lmove rename renamenx rpoplpush smove zrangestore")
add(all_arguments, "del pfmerge sdiffstore sinterstore sunionstore unlink")
add(every_other_argument, "mset msetnx")
add(counted_keys, "zdiffstore zinterstore zunionstore")

-- Returns the names of the commands that a fence accepts, in no particular order.
function fence.commands()
  local names = {}
  for name in pairs(KEYS) do names[#names + 1] = name end
  return names
end

-- Returns the keys of a command that fences allow. `words`: the command as strings.
function fence.keys(words)
  return KEYS[locale.lower(words[1])](words)
end

-- Converts a number to a string that Redis can read, with all its digits.
local function text_of(value)
  if type(value) ~= "number" then return value end
  if math.type and math.type(value) == "integer" then return ("%d"):format(value) end
  local whole = value % 1 == 0 and math.abs(value) < 2 ^ 63
  return locale.decimal(whole and "%.0f" or "%.17g", value)
end

local function check_word(value)
  if type(value) == "string" then return nil end
  if type(value) ~= "number" or value - value ~= 0 then return "a string or a number" end
end

local function check_command(words)
  local wrong, place, found = options.list(words, MAX_WORDS, "a list of 1 to 4000 words", check_word)
  if wrong then return wrong, place, found end
  local keys_of = KEYS[locale.lower(text_of(words[1]))]
  if not keys_of then return "the name of a command that writes to keys", "[1]", options.shown(words[1]) end
  if not words[2] then return "a command name followed by a key", "", "a name alone" end
end

local function check_commands(commands)
  return options.list(commands, 1000, "a list of 1 to 1000 commands", check_command)
end

-- ---- the lock ----

local function check_lock(value)
  local is_lock = type(value) == "userdata" and getmetatable(value) == lock_type.__metatable
  if not is_lock and not lead.is_term(value) then return "a lock or a term" end
  if is_lock and core.kinds[raw.data(value).kind].joint then
    return "an exclusive lock", "", "a read lock"
  end
end

-- → the token | nil, the reason if the lock was lost
local function token_of(lock)
  if lead.is_term(lock) then return lead.token_of(lock) end
  local token = raw.token(lock)
  if token then return token end
  return nil, raw.lost(lock)
end

-- → token, the lock's key | nil, message, code
local function claim(self, lock, what)
  local is_term = lead.is_term(lock)
  local key = is_term and lock:key() or raw.key(lock)
  local token, reason = token_of(lock)
  if token then return token, key end
  if not reason and not is_term and raw.is_held(lock) then
    error(what .. ": lock must have fencing tokens; leave out fencing = false when you create it", 4)
  end
  local how = reason and ("was lost (%s)"):format(reason) or "is not held by this owner"
  return nil, ('cannot write to "%s": the lock "%s" %s; nothing was sent'):format(
    shown(raw.key(self.handle)), shown(key), how), reason and "lost" or "not_held"
end

-- ---- a call ----

local function name_of(key)
  return core.wire.prefixes.fence .. (key:find("{", 1, true) and ":" .. key or ("{%s}"):format(key))
end

-- `given` must already have been checked; `defaults` are the client's.
function fence.new(client, key, given, defaults)
  local ttl = given.ttl or WEEK
  return setmetatable({
    client = client,
    handle = locks.new(client, key, locks.none, defaults),
    ttl_ms = ttl == math.huge and "0" or ("%.0f"):format(math.ceil(ttl * 1000)),
  }, Fence)
end

-- Raises unless all of these keys are valid, and one program can use them together with the
-- resource.
local function check_keys(self, keys, what)
  local group = core.client.group(self.client, raw.key(self.handle))
  for _, key in ipairs(keys) do
    argument(key, options.key, what, "a command's key", 5)
    argument(key, options.free_key, what, "a command's key", 5)
    if core.client.group(self.client, key) ~= group then
      error(('%s: the key "%s" must be in the same slot or shard as the resource "%s"'):format(what,
        shown(key), shown(raw.key(self.handle))), 5)
    end
  end
end

local function add_command(words, command)
  words[#words + 1] = ("%d"):format(#command)
  for i = 1, #command do words[#words + 1] = command[i] end
end

-- → the words of the program, how many of them are keys
local function words_of(self, commands, token, lock_key, what)
  local words = { name_of(raw.key(self.handle)) }
  for _, command in ipairs(commands) do
    local keys = fence.keys(command)
    check_keys(self, keys, what)
    for _, key in ipairs(keys) do words[#words + 1] = key end
  end
  local key_count = #words
  local number = ("%.0f"):format(locks.next_call(self.client))
  local writer = core.client.uuid(self.client)
  for _, word in ipairs { locks.text_of(token), lock_key, writer, number, self.ttl_ms } do
    words[#words + 1] = word
  end
  for _, command in ipairs(commands) do add_command(words, command) end
  return words, key_count
end

-- The last reply is an error: the commands before it have run, those after it have not.
local function fail_at(self, commands, count, failure)
  local name = locale.lower(commands[count][1])
  local before = count > 2 and ("; the first %d commands have already run"):format(count - 1)
    or count == 2 and "; the first command has already run" or ""
  return nil, ('cannot write to "%s" on %s: command %d (%s) failed: %s%s'):format(
    shown(raw.key(self.handle)), core.client.server(self.client), count, name,
    shown(failure), before), core.code_of(failure)
end

local function texts_of(commands)
  local all_words = {}
  for i, command in ipairs(commands) do
    local words = {}
    for j = 1, #command do words[j] = text_of(command[j]) end
    all_words[i] = words
  end
  return all_words
end

-- → the list of replies | nil, message, code
local function send(self, lock, commands, what)
  notify()
  commands = texts_of(commands)
  local token, key, code = claim(self, lock, what)
  if not token then return nil, key, code end
  local words, key_count = words_of(self, commands, token, key, what)
  local text, message, failure = raw.fenced(self.handle, key_count, words)
  if not text then return nil, message, failure end
  local replies = record.decode(text)
  local count = replies.n
  local last = replies[count]
  if type(last) == "table" and last.err then return fail_at(self, commands, count, last.err) end
  replies.n = nil
  return replies
end

-- Claims the resource for a remote holder, which has sent its token and its lock's key.
-- → like Fence:claim
function fence.admit(self, token, lock_key)
  notify()
  local words, key_count = words_of(self, {}, token, lock_key)
  local text, message, code = raw.fenced(self.handle, key_count, words)
  return text and true, message, code
end

-- Runs one command that writes, if the lock is held and no later holder has written to this
-- resource or claimed it.
---@param lock holdfast.lock|holdfast.term held by the caller
---@param command string its name, for example "SET"
---@param ... string|number its arguments, the keys as they are on the server
---@return any answer a string, a number or a list; false for Redis's nil
---@return string? message
---@return holdfast.code? code "stale": a later holder has written, and this write is not carried out; "lost", "not_held"
function Fence:call(lock, command, ...)
  check_self(self, Fence, "fence:call", 2)
  argument(lock, check_lock, "fence:call", "lock", 2)
  local words = { command, ... }
  argument(words, check_command, "fence:call", "command", 2)
  local replies, message, code = send(self, lock, { words }, "fence:call")
  if not replies then return nil, message, code end
  return replies[1]
end

-- Runs several commands atomically, under the same condition as call. The first error ends the run;
-- the commands before it stay in effect.
---@param lock holdfast.lock|holdfast.term
---@param commands (string|number)[][] 1 to 1000 of them, each as { name, argument, ... }
---@return any[]? answers
---@return string? message
---@return holdfast.code? code
---@return_overload nil, string, holdfast.code
function Fence:run(lock, commands)
  check_self(self, Fence, "fence:run", 2)
  argument(lock, check_lock, "fence:run", "lock", 2)
  argument(commands, check_commands, "fence:run", "commands", 2)
  local replies, message, code = send(self, lock, commands, "fence:run")
  return replies, message, code
end

-- Makes the writes of all earlier holders stale without writing; call it before you read.
---@param lock holdfast.lock|holdfast.term
---@return true? claimed
---@return string? message
---@return holdfast.code? code
---@return_overload nil, string, holdfast.code
function Fence:claim(lock)
  check_self(self, Fence, "fence:claim", 2)
  argument(lock, check_lock, "fence:claim", "lock", 2)
  local replies, message, code = send(self, lock, {}, "fence:claim")
  if not replies then return nil, message, code end
  return true
end

-- The resource, with the client's prefix.
---@return string key
function Fence:key()
  check_self(self, Fence, "fence:key", 2)
  return raw.key(self.handle)
end

function Fence:__tostring()
  return Fence.__name .. ": " .. raw.key(self.handle)
end

return fence
