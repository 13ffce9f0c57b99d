-- Commands on sorted sets. strings.lua describes the format of the entries.

local arguments = require "holdfast.testing.redis.arguments"
local fail = require "holdfast.testing.redis.fail"

local commands = {}

local EMPTY_ZSET = { count = 0, members = {}, scores = {}, score_of = {} }

local function read(client, key)
  return client.db:get(key, "zset") or EMPTY_ZSET
end

-- Returns the members from index `first` to index `last`.
local function slice(zset, first, last, with_scores, step)
  local list = {}
  for i = first, last, step or 1 do
    list[#list + 1] = zset.members[i]
    if with_scores then list[#list + 1] = arguments.double_text(zset.scores[i]) end
  end
  return list
end

local ADD_OPTIONS = { NX = true, XX = true, CH = true, GT = true, LT = true, INCR = true }

local function add_options(args)
  local given, at = {}, 3
  while args[at] and ADD_OPTIONS[args[at]:upper()] do
    local name = args[at]:upper()
    if name == "GT" or name == "LT" or name == "INCR" then arguments.unsupported("ZADD", name) end
    given[name] = true
    at = at + 1
  end
  return given, at
end

local function scores_from(args, at)
  local list = {}
  for i = at, #args, 2 do list[#list + 1] = { arguments.double(args[i]), args[i + 1] } end
  return list
end

commands.ZADD = { -4, "wm", function(client, args)
  local given, at = add_options(args)
  if at > #args or (#args - at) % 2 == 0 then fail("ERR syntax error") end
  if given.NX and given.XX then
    fail("ERR XX and NX options at the same time are not compatible")
  end
  local score_pairs = scores_from(args, at)
  local zset = client.db:get(args[2], "zset")
  if not zset and given.XX then return 0, true end
  zset = zset or client.db:open(args[2], "zset")
  local added, changed = 0, 0
  for _, pair in ipairs(score_pairs) do
    local score, member = pair[1], pair[2]
    local old = zset.score_of[member]
    if not old and not given.XX then
      added = added + 1
      zset:set(member, score)
    elseif old and not given.NX and old ~= score then
      changed = changed + 1
      zset:set(member, score)
    end
  end
  return given.CH and added + changed or added, added + changed == 0
end }

commands.ZINCRBY = { 4, "wm", function(client, args)
  local amount = arguments.double(args[3])
  local zset = client.db:get(args[2], "zset")
  local score = (zset and zset.score_of[args[4]] or 0) + amount
  if score ~= score then fail("ERR resulting score is not a number (NaN)") end
  client.db:open(args[2], "zset"):set(args[4], score)
  return arguments.double_text(score)
end }

commands.ZREM = { -3, "w", function(client, args)
  return client.db:remove_members(args, "zset")
end }

commands.ZSCORE = { 3, "r", function(client, args)
  local score = read(client, args[2]).score_of[args[3]]
  return score and arguments.double_text(score) or false
end }

commands.ZCARD = { 2, "r", function(client, args) return read(client, args[2]).count end }

commands.ZRANK = { 3, "r", function(client, args)
  local zset = read(client, args[2])
  local rank = zset ~= EMPTY_ZSET and zset:rank(args[3])
  return rank and rank - 1 or false
end }

local function range_options(args, known)
  local given = {}
  local at = 5
  while at <= #args do
    local name = args[at]:upper()
    if name == "LIMIT" and known.LIMIT and args[at + 2] then
      given.offset, given.limit = arguments.integer(args[at + 1]), arguments.integer(args[at + 2])
      at = at + 2
    elseif known[name] then
      given[name] = true
    elseif name == "BYSCORE" or name == "BYLEX" or name == "LIMIT" then
      arguments.unsupported(args[1], name)
    else
      fail("ERR syntax error")
    end
    at = at + 1
  end
  return given
end

commands.ZRANGE = { -4, "r", function(client, args)
  local given = range_options(args, { WITHSCORES = true, REV = true })
  local start, stop = arguments.integer(args[3]), arguments.integer(args[4])
  local zset = read(client, args[2])
  local first, last = arguments.index_range(start, stop, zset.count)
  if given.REV then
    return slice(zset, zset.count + 1 - first, zset.count + 1 - last, given.WITHSCORES, -1)
  end
  return slice(zset, first, last, given.WITHSCORES)
end }

-- Returns the first and last index of the members in a score range. In a missing set the range is
-- empty.
local function between(zset, min, max)
  if zset == EMPTY_ZSET then return 1, 0 end
  return zset:between(min, max)
end

commands.ZRANGEBYSCORE = { -4, "r", function(client, args)
  local given = range_options(args, { WITHSCORES = true, LIMIT = true })
  local min, max = arguments.bound(args[3]), arguments.bound(args[4])
  local zset = read(client, args[2])
  local first, last = between(zset, min, max)
  if given.limit then
    if given.offset < 0 then return {} end
    first = first + given.offset
    if given.limit >= 0 then last = math.min(last, first + given.limit - 1) end
  end
  return slice(zset, first, last, given.WITHSCORES)
end }

commands.ZCOUNT = { 4, "r", function(client, args)
  local min, max = arguments.bound(args[3]), arguments.bound(args[4])
  local first, last = between(read(client, args[2]), min, max)
  return math.max(0, last - first + 1)
end }

local function remove_range(client, key, zset, first, last)
  for _, member in ipairs(slice(zset, first, last)) do zset:remove(member) end
  if zset ~= EMPTY_ZSET then client.db:remove_if_empty(key) end
end

commands.ZREMRANGEBYSCORE = { 4, "w", function(client, args)
  local min, max = arguments.bound(args[3]), arguments.bound(args[4])
  local zset = read(client, args[2])
  local first, last = between(zset, min, max)
  remove_range(client, args[2], zset, first, last)
  return math.max(0, last - first + 1)
end }

commands.ZPOPMIN = { -2, "w", function(client, args)
  if #args > 3 then fail("ERR syntax error") end
  local count = args[3] and arguments.count(args[3]) or 1
  local zset = read(client, args[2])
  local last = math.min(count, zset.count)
  local list = slice(zset, 1, last, true)
  remove_range(client, args[2], zset, 1, last)
  return list
end }

return commands
