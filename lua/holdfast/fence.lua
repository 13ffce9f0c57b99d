-- A fence: the server carries out a write through it only if no later holder of the lock has
-- written to the resource or claimed it. See docs/explanation/fencing.md.

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
local check_argument, check_self, notify = options.check_argument, options.check_self, loss.notify
local shown = texts.shown

---@class holdfast.fence
local Fence = {}
Fence.__index = Fence
Fence.__name = "holdfast.fence"

local WEEK = 7 * 24 * 3600
local MAX_ARGS = 4000 -- for one command and its name; a server-side program cannot pass more

---@class holdfast.fence_options
---@field ttl? number seconds that the fence is kept after the last write; math.huge keeps it forever; default 7 days

local fence = { options = { ttl = options.token_ttl } }

-- ---- commands ----

local function first_argument(args) return { args[2] } end
local function first_two_arguments(args) return { args[2], args[3] } end

local function all_arguments(args)
  local keys = {}
  for i = 2, #args do keys[i - 1] = args[i] end
  return keys
end

local function every_other_argument(args)
  local keys = {}
  for i = 2, #args, 2 do keys[#keys + 1] = args[i] end
  return keys
end

local function counted_keys(args)
  local keys = { args[2] }
  for i = 4, math.min(#args, 3 + (locale.number(args[3]) or 0)) do keys[#keys + 1] = args[i] end
  return keys
end

-- name -> a function of a command that returns the keys among its arguments
local GET_KEYS = {}

local function add(get_keys, names)
  for name in names:gmatch("[^ \n]+") do GET_KEYS[name] = get_keys end
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
  for name in pairs(GET_KEYS) do names[#names + 1] = name end
  return names
end

-- Returns the keys of a command that a fence accepts. `args`: its name and arguments, as strings.
function fence.keys(args)
  return GET_KEYS[locale.lower(args[1])](args)
end

-- Converts a number to a string that Redis can read, with all its digits.
local function to_string(value)
  if type(value) ~= "number" then return value end
  if math.type and math.type(value) == "integer" then return ("%d"):format(value) end
  local whole = value % 1 == 0 and math.abs(value) < 2 ^ 63
  return locale.decimal(whole and "%.0f" or "%.17g", value)
end

local function check_arg(value)
  if type(value) == "string" then return nil end
  if type(value) ~= "number" or value - value ~= 0 then return "a string or a number" end
end

local function check_command(args)
  local expected, suffix, found = options.list(args, MAX_ARGS, "a list of 1 to 4000 words", check_arg)
  if expected then return expected, suffix, found end
  local get_keys = GET_KEYS[locale.lower(to_string(args[1]))]
  if not get_keys then return "the name of a command that writes to keys", "[1]", options.shown(args[1]) end
  if not args[2] then return "a command name followed by a key", "", "a name alone" end
end

local function check_commands(commands)
  return options.list(commands, 1000, "a list of 1 to 1000 commands", check_command)
end

-- ---- the lock ----

local function check_lock(value)
  local is_lock = type(value) == "userdata" and getmetatable(value) == lock_type.__metatable
  if not is_lock and not lead.is_term(value) then return "a lock or a term" end
  if is_lock and core.kinds[raw.data(value).kind].many_owners then
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
local function require_token(self, lock, func_name)
  local is_term = lead.is_term(lock)
  local key = is_term and lock:key() or raw.key(lock)
  local token, reason = token_of(lock)
  if token then return token, key end
  if not reason and not is_term and raw.is_held(lock) then
    error(func_name .. ": lock must have fencing tokens; leave out fencing = false when you create it", 4)
  end
  local how = reason and ("was lost (%s)"):format(reason) or "is not held by this owner"
  return nil, ('cannot write to "%s": the lock "%s" %s; nothing was sent'):format(
    shown(raw.key(self.handle)), shown(key), how), reason and "lost" or "not_held"
end

-- ---- a call ----

local function fence_key(key)
  return core.wire.prefixes.fence .. (key:find("{", 1, true) and ":" .. key or ("{%s}"):format(key))
end

-- `given` must already have been checked; `defaults` are the client's.
function fence.new(client, key, given, defaults)
  local ttl = given.ttl or WEEK
  return setmetatable({
    client = client,
    handle = locks.new(client, key, locks.no_options, defaults),
    ttl_ms = ttl == math.huge and "0" or ("%.0f"):format(math.ceil(ttl * 1000)),
  }, Fence)
end

-- Raises unless all of these keys are valid, and the same program can use them and the resource.
local function check_keys(self, keys, func_name)
  local group = core.client.group(self.client, raw.key(self.handle))
  for _, key in ipairs(keys) do
    check_argument(key, options.key, func_name, "a command's key", 5)
    check_argument(key, options.unreserved_key, func_name, "a command's key", 5)
    if core.client.group(self.client, key) ~= group then
      error(('%s: the key "%s" must be in the same slot or shard as the resource "%s"'):format(func_name,
        shown(key), shown(raw.key(self.handle))), 5)
    end
  end
end

local function add_command(args, command)
  args[#args + 1] = ("%d"):format(#command)
  for i = 1, #command do args[#args + 1] = command[i] end
end

-- → the program's keys and arguments, the number of keys
local function program_args(self, commands, token, lock_key, func_name)
  local args = { fence_key(raw.key(self.handle)) }
  for _, command in ipairs(commands) do
    local keys = fence.keys(command)
    check_keys(self, keys, func_name)
    for _, key in ipairs(keys) do args[#args + 1] = key end
  end
  local key_count = #args
  local number = ("%.0f"):format(locks.next_call(self.client))
  local writer = core.client.uuid(self.client)
  for _, arg in ipairs { locks.text_of(token), lock_key, writer, number, self.ttl_ms } do
    args[#args + 1] = arg
  end
  for _, command in ipairs(commands) do add_command(args, command) end
  return args, key_count
end

-- Returns the failure of command `count`. The commands before it have run, those after it have not.
local function fail_at(self, commands, count, failure)
  local name = locale.lower(commands[count][1])
  local before = count > 2 and ("; the first %d commands have already run"):format(count - 1)
    or count == 2 and "; the first command has already run" or ""
  return nil, ('cannot write to "%s" on %s: command %d (%s) failed: %s%s'):format(
    shown(raw.key(self.handle)), core.client.server(self.client), count, name,
    shown(failure), before), core.code_of(failure)
end

local function to_strings(commands)
  local result = {}
  for i, command in ipairs(commands) do
    local args = {}
    for j = 1, #command do args[j] = to_string(command[j]) end
    result[i] = args
  end
  return result
end

-- → the list of replies | nil, message, code
local function send(self, lock, commands, func_name)
  notify()
  commands = to_strings(commands)
  local token, key, code = require_token(self, lock, func_name)
  if not token then return nil, key, code end
  local args, key_count = program_args(self, commands, token, key, func_name)
  local text, message, failure = raw.fenced(self.handle, key_count, args)
  if not text then return nil, message, failure end
  local replies = record.decode(text)
  local count = replies.n
  local last = replies[count]
  if type(last) == "table" and last.err then return fail_at(self, commands, count, last.err) end
  replies.n = nil
  return replies
end

-- Claims the resource for a remote holder, which has sent its token and its lock's key.
-- → the same as Fence:claim
function fence.admit(self, token, lock_key)
  notify()
  local args, key_count = program_args(self, {}, token, lock_key)
  local text, message, code = raw.fenced(self.handle, key_count, args)
  return text and true, message, code
end

-- Runs a write command if the lock is held and no later holder has written to this resource or
-- claimed it.
---@param lock holdfast.lock|holdfast.term held by the caller
---@param command string its name, for example "SET"
---@param ... string|number its arguments, with full keys
---@return any reply a string, a number or a list; false for Redis's nil
---@return string? message
---@return holdfast.code? code "stale": a later holder has written, and this write is not carried out; "lost", "not_held"
function Fence:call(lock, command, ...)
  check_self(self, Fence, "fence:call", 2)
  check_argument(lock, check_lock, "fence:call", "lock", 2)
  local args = { command, ... }
  check_argument(args, check_command, "fence:call", "command", 2)
  local replies, message, code = send(self, lock, { args }, "fence:call")
  if not replies then return nil, message, code end
  return replies[1]
end

-- Runs several commands atomically, under the same condition as call. The first error ends the run;
-- the commands before it stay in effect.
---@param lock holdfast.lock|holdfast.term
---@param commands (string|number)[][] 1 to 1000 of them, each as { name, argument, ... }
---@return any[]? replies
---@return string? message
---@return holdfast.code? code
---@return_overload nil, string, holdfast.code
function Fence:run(lock, commands)
  check_self(self, Fence, "fence:run", 2)
  check_argument(lock, check_lock, "fence:run", "lock", 2)
  check_argument(commands, check_commands, "fence:run", "commands", 2)
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
  check_argument(lock, check_lock, "fence:claim", "lock", 2)
  local replies, message, code = send(self, lock, {}, "fence:claim")
  if not replies then return nil, message, code end
  return true
end

-- Returns the resource, with the client's prefix.
---@return string key
function Fence:key()
  check_self(self, Fence, "fence:key", 2)
  return raw.key(self.handle)
end

function Fence:__tostring()
  return Fence.__name .. ": " .. raw.key(self.handle)
end

return fence
