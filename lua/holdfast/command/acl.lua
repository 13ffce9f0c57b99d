-- holdfast acl: prints the rule for a Redis user that may use only keys with a given prefix.
--
-- docs/how-to/redis.md explains it. The specs run every kind with exactly these rights.

local core = require "holdfast.core"
local exits = require "holdfast.command.exits"
local library_options = require "holdfast.options"
local options = require "holdfast.command.options"
local output = require "holdfast.command.output"
local records = require "holdfast.command.records"

local acl = {}

local prefixes = core.wire.prefixes
local TOKEN, QUEUE, RELEASES = prefixes.counter, prefixes.queue, prefixes.releases
local CALL, FENCE = prefixes.call, prefixes.fence

local function channel_of(kind)
  return core.kinds[kind].channel
end

-- The commands that every user needs. The keys for a client's identity and its waits also contain
-- the prefix, which is the client's option `tenant`.
local COMMON = "auth select ping info client|setname eval evalsha get set del time hlen "
  .. "subscribe unsubscribe publish pubsub|numsub"

local ZSETS = "zadd zrem zrange zrangebyscore zcount zscore "

-- The names on the server that a kind uses in addition to the lock's key. `keys`: prefixes of keys,
-- each followed by the lock's key, in braces unless it contains a brace. `channel`: the prefix of a
-- channel, which is also passed as a key. `suffix`: the end of a key that begins with the lock's
-- key in braces.
acl.kinds = {
  { "lock", keys = { TOKEN, QUEUE }, channel = RELEASES,
    commands = "exists type pttl pexpire hget hset hdel hmget hkeys hexists zcard zremrangebyscore "
      .. ZSETS },
  { "mutex", keys = { TOKEN, QUEUE }, channel = RELEASES,
    commands = "exists type pttl pexpire hexists zcard zremrangebyscore " .. ZSETS },
  { "read_write", keys = { TOKEN, QUEUE }, channel = channel_of "write", suffix = ":*:rwlock_timeout:*",
    commands = "exists type pttl pexpire hget hset hdel hkeys hexists hgetall hscan zremrangebyscore "
      .. ZSETS },
  { "semaphore", keys = { TOKEN, QUEUE }, channel = channel_of "permit", suffix = ":timeout",
    commands = "exists type pttl pexpire incrby zcard zremrangebyscore " .. ZSETS },
  { "fair", keys = { TOKEN, prefixes.list, prefixes.timeouts }, channel = RELEASES,
    commands = "exists type pttl pexpire hget hset hkeys "
      .. "lindex llen lpop lrange lrem rpush zadd zrem zscore" },
  { "latch", keys = { CALL }, channel = channel_of "latch", commands = "decrby" },
  { "plain_semaphore", keys = { CALL }, channel = channel_of "plain_semaphore",
    commands = "exists incrby decrby" },
  { "fence", keys = { FENCE }, commands = "hmget hset hkeys hdel pttl pexpire persist" },
}

local CLUSTER = "cluster|slots cluster|myid asking pubsub|shardnumsub spublish ssubscribe sunsubscribe"

-- Escapes the characters that Redis treats as wildcards.
local function escape_wildcards(prefix)
  return (prefix:gsub("[%*%?%[%]\\]", "\\%0"))
end

-- → an empty list; a function that adds a word to the list unless the list already contains it
local function new_word_list()
  local words, known = {}, {}
  return words, function(word)
    if not known[word] then words[#words + 1] = word end
    known[word] = true
  end
end

-- Prefixes that end in a colon if the key contains a brace.
local UNBRACED = { [QUEUE] = QUEUE .. ":", [FENCE] = FENCE .. ":" }

-- Adds the patterns of names for keys with this prefix: with the key in braces, and for keys that
-- contain a brace.
local function add_forms(name, prefix, add)
  if not prefix:find("{", 1, true) then add(name .. "{" .. prefix .. "*") end
  add((UNBRACED[name] or name) .. prefix .. "*")
end

local function add_kind(kind, prefix, given, add_key, add_channel)
  add_key(prefix .. "*")
  for _, name in ipairs(kind.keys) do add_forms(name, prefix, add_key) end
  if kind.channel then
    add_forms(kind.channel, prefix, function(name)
      add_key(name)
      add_channel(name)
    end)
  end
  if kind.suffix and not prefix:find("{", 1, true) then
    add_key("{" .. prefix .. "*}" .. kind.suffix)
  end
  if given.cluster then add_forms(prefixes.listening, prefix, add_channel) end
end

-- Returns the rule's words after the user's name. `given`: { kinds = rows of acl.kinds, cluster,
-- sentinel, sync, idempotent = booleans }
function acl.rule_words(prefix, given)
  local rule, add = new_word_list()
  local function adder(sign)
    return function(word) add(sign .. word) end
  end
  local add_key, add_channel, add_command = adder "~", adder "&", adder "+"
  -- On some servers a reset allows the user all channels.
  for _, word in ipairs { "reset", "on", "resetchannels" } do add(word) end
  prefix = escape_wildcards(prefix)
  for _, kind in ipairs(given.kinds) do
    add_kind(kind, prefix, given, add_key, add_channel)
  end
  if given.idempotent then
    add_kind(acl.kinds[1], records.name(prefix), given, add_key, add_channel)
  end
  add_key(prefixes.client .. prefix .. "*")
  add_key(prefixes.wait .. prefix .. "*")
  add_channel(prefixes.grant .. "*")
  local commands = { COMMON, given.cluster and CLUSTER or "", given.sentinel and "role" or "",
    given.sync and "wait" or "" }
  for _, kind in ipairs(given.kinds) do commands[#commands + 1] = kind.commands end
  if given.idempotent then commands[#commands + 1] = acl.kinds[1].commands end
  for name in table.concat(commands, " "):gmatch("[^ ]+") do add_command(name) end
  return rule
end

-- Prefixes of names that all users' locks have. The other names of a lock begin with {key}.
local SHARED_PREFIXES = { "holdfast_", "redisson_" }

-- Returns whether a rule for this prefix excludes all names that other users' locks have.
local function is_separate(prefix)
  for _, name in ipairs(SHARED_PREFIXES) do
    local size = math.min(#name, #prefix)
    if prefix:sub(1, size) == name:sub(1, size) then return false end
  end
  return prefix ~= "{"
end

-- Checks a rule's prefix, like the checks in holdfast.options. → what the prefix must be | nil if
-- it is valid
function acl.check(prefix)
  local expected = library_options.tenant(prefix)
  if expected then return expected end
  if not is_separate(prefix) then
    return 'a string that is not "{", does not begin with "holdfast_" or "redisson_" and is not the beginning '
      .. "of either: other users' queues and counters have these prefixes"
  end
end

-- ---- the subcommand ----

acl.usage = "holdfast acl PREFIX [options]"
acl.summary = "Print the ACL rule for a Redis user that may use only keys with a given prefix."
acl.details = "This subcommand does not connect to a server. Pipe the rule into redis-cli as a user that may\n"
  .. "change ACLs, then set the user's password with ACL SETUSER NAME >PASSWORD: the rule takes away all\n"
  .. "rights and passwords that the user had before. Clients that log in as the user need the\n"
  .. "option tenant = PREFIX, or --tenant PREFIX on the command line.\n"
  .. "No user's prefix may begin with another user's prefix."
acl.examples = {
  "holdfast acl shop:                              # plain locks",
  "holdfast acl shop: --user shop --kinds all      # every kind of lock, for a user named shop",
  "holdfast acl jobs: --idempotent >jobs.acl       # also allows run --idempotent",
}

local function names_of_kinds()
  local names = {}
  for i, kind in ipairs(acl.kinds) do names[i] = kind[1] end
  return names
end

local MUST_BE = "all, or any of " .. table.concat(names_of_kinds(), ",")

local function find_kind(name)
  for _, kind in ipairs(acl.kinds) do
    if kind[1] == name then return kind end
  end
end

-- → rows of acl.kinds | nil, what the argument must be
function acl.read_kinds(argument)
  if argument == "all" then return acl.kinds end
  local rows = {}
  for name in (argument .. ","):gmatch("([^,]*),") do
    local kind = find_kind(name)
    if not kind then return nil, MUST_BE end
    rows[#rows + 1] = kind
  end
  return rows
end

local function read_user(name)
  if not library_options.tenant(name) then return name end
  return nil, "a name without spaces"
end

acl.options = options.join {
  title = "Options",
  { "kinds", value = "KIND,KIND", check = acl.read_kinds, help = MUST_BE:gsub(",", ", ") .. " (default: lock)" },
  { "user", value = "NAME", check = read_user, help = "name of the user (default: holdfast)" },
  { "idempotent", help = "the user runs jobs with `run --idempotent`" },
  { "cluster", help = "the server is a node of a cluster" },
  { "sentinel", help = "the user's clients find the server through Sentinel" },
  { "sync", help = "the user's clients wait for replicas" },
}

-- Quotes a word for redis-cli.
local function quoted(word)
  if not word:find("[\"'\\]") then return word end
  return '"' .. word:gsub('["\\]', "\\%0") .. '"'
end

function acl.main(args)
  local given, words, rest = options.read(acl.options, args, 2)
  local out = output.new("holdfast acl", given or {})
  if not given then return out:fail(exits.USAGE, "usage", words) end
  for _, word in ipairs(rest or {}) do words[#words + 1] = word end
  if #words ~= 1 then return out:usage_error("give one PREFIX", acl.usage) end
  local expected = acl.check(words[1])
  if expected then return out:fail(exits.USAGE, "usage", ('PREFIX must be %s, not "%s"'):format(expected, words[1])) end
  given.kinds = given.kinds or { acl.kinds[1] }
  local line = { "ACL", "SETUSER", quoted(given.user or "holdfast") }
  for _, word in ipairs(acl.rule_words(words[1], given)) do line[#line + 1] = quoted(word) end
  output.print(table.concat(line, " "))
  return exits.OK
end

return acl
