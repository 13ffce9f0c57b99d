-- Uses ACL DRYRUN to find commands and keys that locks need but the user may not use.

local acl = require "holdfast.command.acl"
local core = require "holdfast.core"
local unpack = require("holdfast.compat").unpack

local rights = {}

local KEY, CHANNEL = {}, {} -- placeholders in a command's arguments

-- Arguments for commands whose first argument is not a key. Any other command gets a key, and then
-- as many arguments as it needs.
local ARGUMENTS = {
  auth = { "x" }, select = { "0" }, ping = {}, info = {}, time = {}, role = {}, asking = {},
  wait = { "1", "1" }, publish = { CHANNEL, "x" }, spublish = { CHANNEL, "x" },
  subscribe = { CHANNEL }, unsubscribe = {}, ssubscribe = { CHANNEL }, sunsubscribe = {},
  eval = { "return 1", "1", KEY }, evalsha = { ("0"):rep(40), "1", KEY },
  ["client|setname"] = { "x" }, ["pubsub|numsub"] = { CHANNEL }, ["pubsub|shardnumsub"] = { CHANNEL },
  ["cluster|slots"] = {}, ["cluster|myid"] = {},
}

local MAX_ARGUMENTS = 4 -- maximum arguments of a command, including the key

local function replace_placeholders(words, key, channel)
  local replaced = {}
  for i, word in ipairs(words) do
    replaced[i] = word == KEY and key or word == CHANNEL and channel or word
  end
  return replaced
end

-- Tries the command as this user. → the server's reply
local function dry_run(facts, user, name, arguments)
  local words = { "ACL", "DRYRUN", user }
  for word in name:gmatch("[^|]+") do words[#words + 1] = word end
  for _, word in ipairs(arguments) do words[#words + 1] = word end
  local reply, message = facts:ask(unpack(words))
  return type(reply) == "string" and reply or message or "the server does not answer ACL DRYRUN"
end

local function needs_more_arguments(reply)
  return reply:find("wrong number of arguments", 1, true)
end

-- Tries the command with this key. → the server's reply
local function run_with_key(facts, user, name, key, channel)
  local known = ARGUMENTS[name]
  if known then return dry_run(facts, user, name, replace_placeholders(known, key, channel)) end
  local arguments = { key }
  local reply = dry_run(facts, user, name, arguments)
  while needs_more_arguments(reply) and #arguments < MAX_ARGUMENTS do
    arguments[#arguments + 1] = "1"
    reply = dry_run(facts, user, name, arguments)
  end
  return reply
end

local NAME = "holdfast_doctor" -- stands for the wildcard in a pattern

-- Returns a name that matches a rule's pattern.
local function matching_name(pattern)
  return (pattern:gsub("(\\?)(.)", function(escape, char)
    return escape == "" and char == "*" and NAME or char
  end))
end

-- Returns whether locks fail without access to this key. Locks work without the keys for a client's
-- identity and waits, which only show the client to others.
local function is_needed(key)
  local prefixes = core.wire.prefixes
  return key:find(prefixes.client, 1, true) ~= 1 and key:find(prefixes.wait, 1, true) ~= 1
end

-- → the commands in the rule for the checked kinds; a key for each of the rule's key patterns
local function commands_and_keys(facts)
  local set, commands, keys = facts.set, {}, {}
  local rule = acl.rule_words(set.prefix,
    { kinds = set.kinds, cluster = set.is_cluster, sentinel = set.is_sentinel })
  for _, word in ipairs(rule) do
    local sign, rest = word:sub(1, 1), word:sub(2)
    if sign == "+" then commands[#commands + 1] = rest end
    if sign == "~" and is_needed(rest) then keys[#keys + 1] = matching_name(rest) end
  end
  return commands, keys
end

-- Commands that locks work without.
local NOT_NEEDED = { info = true, ["client|setname"] = true, ["cluster|myid"] = true,
  ["pubsub|shardnumsub"] = true }

local ADVICE = "holdfast acl prints the rule for a user"

-- A check: see checks.lua.
function rights.check(facts, add)
  local user, why = facts:ask("ACL", "WHOAMI")
  if type(user) ~= "string" then return false, why or "the server does not answer ACL WHOAMI" end
  local key = facts.set.prefix .. NAME
  local channel = core.wire.prefixes.releases .. "{" .. key .. "}"
  local refused, key_problem = {}, nil
  local commands, keys = commands_and_keys(facts)
  for _, name in ipairs(commands) do
    local reply = run_with_key(facts, user, name, key, channel)
    if reply:find("permissions to run", 1, true) and not NOT_NEEDED[name] then
      refused[#refused + 1] = name
    elseif reply:find("permissions to access", 1, true) then
      key_problem = key_problem or reply
    elseif reply ~= "OK" and not NOT_NEEDED[name] then
      return false, reply
    end
  end
  for _, other in ipairs(facts.set.has_prefix and keys or {}) do
    local reply = run_with_key(facts, user, "set", other, channel)
    if reply:find("permissions to access", 1, true) then key_problem = key_problem or reply end
  end
  if #refused > 0 then
    add(("user %s may not send %s"):format(user, table.concat(refused, ", ")), ADVICE)
  end
  if key_problem and facts.set.has_prefix then add(key_problem, ADVICE) end
  return true
end

return rights
