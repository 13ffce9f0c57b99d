-- Runs plain commands and checks that their replies have the type that Redis would send.

local core = require "holdfast.core"
local driver = require "holdfast.driver"

local replies = {}

local function is_string(value) return type(value) == "string" end
local function is_number(value) return type(value) == "number" end
local function is_string_or_nil(value) return value == nil or is_string(value) end

local function is_strings(value)
  if type(value) ~= "table" then return false end
  for i = 1, #value do
    if not is_string(value[i]) then return false end
  end
  return true
end

local function is_page(value)
  return type(value) == "table" and is_string(value[1]) and is_strings(value[2])
end

-- Expects channels and their numbers of subscribers, alternating.
local function is_subscriber_counts(value)
  if type(value) ~= "table" or #value == 0 or #value % 2 == 1 then return false end
  for i = 2, #value, 2 do
    if not is_number(value[i]) then return false end
  end
  return true
end

local FITS = {
  GET = is_string_or_nil, HGET = is_string_or_nil, TYPE = is_string,
  DBSIZE = is_number, EVAL = is_number, EXISTS = is_number, HEXISTS = is_number, HLEN = is_number,
  PTTL = is_number, STRLEN = is_number,
  LRANGE = is_strings, TIME = is_strings, ZRANGE = is_strings, ZRANGEBYSCORE = is_strings,
  CHANNELS = is_strings, SHARDCHANNELS = is_strings,
  NUMSUB = is_subscriber_counts, SHARDNUMSUB = is_subscriber_counts,
  SCAN = is_page, HSCAN = is_page,
}

local WRONG = "cannot read the reply to %s from %s: it has an unexpected type; " ..
  "check that this is the address of a Redis or Valkey server"

-- → the reply, if it has the type expected from the command `name` | nil, message, code
function replies.check(name, reply, client, shown)
  if FITS[name](reply) then return reply end
  return nil, WRONG:format(shown or name, core.client.server(client)), "server"
end

-- Like driver.command, for the commands above. A reply of a wrong type is a failure, "server".
function replies.command(client, words, node, within)
  local reply, message, code = driver.command(client, words, node, within)
  if code then return reply, message, code end
  local name = words[1] == "PUBSUB" and words[2] or words[1]
  return replies.check(name, reply, client, words[1])
end

return replies
