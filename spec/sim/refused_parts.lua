-- Calls a program as a user without the right to one of its commands, on a copy of the keys: once
-- for each command after the first write. Nothing may be lost for good: see RULES.

local NO_PLACE = 2 ^ 53 - 1
local WRITES = {}
for name in ("set del hset hdel pexpire persist zadd zrem zremrangebyscore incrby decrby lpop rpush lrem")
  :gmatch "%S+" do
  WRITES[name] = true
end
-- If a program cannot ask whether a client is subscribed, the client counts as gone, and its
-- waiters lose their places.
local LEFT_OUT = { "eval", "evalsha", "pubsub|numsub" }

local refused_parts = {}

local function copy_of(value)
  if type(value) ~= "table" then return value end
  local copy = {}
  for key, item in pairs(value) do copy[key] = copy_of(item) end
  return setmetatable(copy, getmetatable(value))
end

local function entries_of(server)
  local all = {}
  for index, keyspace in pairs(server.databases) do all[index] = keyspace.entries end
  return all
end

local function put_back(server, entries)
  for index, keyspace in pairs(server.databases) do
    keyspace.entries = copy_of(entries[index]) or {}
  end
end

-- ---- what may not happen ----

local function value_of(entries, key)
  local entry = entries[key]
  return entry and (entry.kind == "string" and entry.value or entry.kind)
end

-- 0: there is no number that counts
local function number_at(entries, key)
  local text = value_of(entries, key) or ""
  return text:find "^%d+$" and #text <= 16 and tonumber(text) or 0
end

local function field(entries, key, name)
  local entry = entries[key]
  return entry and entry.kind == "hash" and entry.value.values[name]
end

-- → the number of permits, free or taken | nil: the total was not set
local function permits_in(entries, keys)
  local free, leases = entries[keys[1]], entries[keys[5]]
  if not free or free.kind ~= "string" or leases and leases.kind ~= "zset" then return nil end
  local count = free.value:find "^%-?%d+$" and tonumber(free.value)
  return count and count + (leases and leases.value.count or 0)
end

local function is_queued(entries, key, member)
  local queue = entries[key]
  if not queue then return false end
  if queue.kind == "zset" then
    local score = queue.value.score_of[member] or 0
    return score ~= 0 and score < NO_PLACE
  end
  for i = 1, queue.kind == "list" and queue.value.count or 0 do
    if queue.value.items[i] == member then return true end
  end
  return false
end

-- rule(call, before, now, whole) → whether it is broken. call: name, keys, args; the entries before
-- it, after it, and after it without a refusal.
local RULES = {
  ["a lock never ends"] = function(call, before, now)
    if call.name == "fence" then return false end
    for key, entry in pairs(now) do
      local was = before[key]
      local ended = not was or was.kind ~= "hash" or was.expires
      if entry.kind == "hash" and not entry.expires and ended then return true end
    end
  end,
  ["a lock is held by nobody"] = function(call, before, now)
    local entry, was = now[call.keys[1]], before[call.keys[1]]
    local empty = entry and entry.kind == "hash" and entry.value.count == 1 and entry.value.values.mode
    return empty and field(before, call.keys[1], call.args[1]) and was.value.count == 2
  end,
  ["permits appear or are lost"] = function(call, before, now, whole)
    if not call.name:find "^permit_" or not call.keys[5] then return false end
    local count = permits_in(now, call.keys)
    return count ~= permits_in(before, call.keys) and count ~= permits_in(whole, call.keys)
  end,
  ["a call counts, and its note does not say so"] = function(call, before, now, whole)
    if not call.name:find "^semaphore_" and not call.name:find "^latch_" then return false end
    local function is(entries)
      return value_of(now, call.keys[1]) == value_of(entries, call.keys[1])
        and value_of(now, call.keys[2]) == value_of(entries, call.keys[2])
    end
    return not is(before) and not is(whole)
  end,
  ["a run leaves neither its lock nor its record"] = function(call, before, now)
    local lock, owner = call.keys[1], call.args[1]
    if call.name:gsub("^sharded_", "") ~= "complete" or tostring(call.args[3]) == "0" then return false end
    return field(before, lock, owner) and not field(now, lock, owner) and not field(now, lock, "done")
  end,
  ["a waiter loses its place"] = function(call, before, now, whole)
    if not call.name:find "acquire$" then return false end
    local member = call.name:find "fair_" and call.args[1] or call.args[7] or ""
    return is_queued(before, call.keys[3], member) and not is_queued(now, call.keys[3], member)
      and is_queued(whole, call.keys[3], member)
  end,
  ["a token is given out again"] = function(call, before, now, whole)
    local counter = call.keys[2] or ""
    local was = counter:find "token" and number_at(before, counter) or 0
    return number_at(now, counter) < was and number_at(whole, counter) >= was
  end,
}

local function broken_rule(call, before, now, whole)
  for rule, is_broken in pairs(RULES) do
    if is_broken(call, before[0], now[0], whole[0]) then return rule end
  end
end

-- ---- trying ----

-- Counts a message without sending it.
local function publish(run, client, args)
  local receivers = run(client, args)
  client.server.outbox = {}
  return receivers
end

-- Calls the program on a copy of the keys. denied: command → whether it is refused. → the keys
-- after that
local function attempt(server, before, run, denied)
  local faults, replaced = server.faults, server.replaced
  setmetatable(denied, { __index = faults.deny })
  server.faults = setmetatable({ deny = denied }, { __index = faults })
  server.replaced = setmetatable({ publish = publish, spublish = publish }, { __index = replaced })
  run()
  server.faults, server.replaced = faults, replaced
  local now = entries_of(server)
  put_back(server, before)
  return now
end

-- run(): calls the program. → nil | what is wrong. Without a TTL, what is left can only be deleted,
-- so a case that refuses the TTL is not tried with a second refusal.
function refused_parts.check(server, call, run)
  if server.faults.deny.pexpire then return end
  local before, called = copy_of(entries_of(server)), {}
  local deny, wrote = server.faults.deny, false
  local watched = setmetatable({}, { __index = function(_, name)
    called[name] = called[name] or wrote
    wrote = wrote or WRITES[name]
    return deny[name]
  end })
  local faults = server.faults
  server.faults = setmetatable({ deny = watched }, { __index = faults })
  local whole = attempt(server, before, run, {})
  server.faults = faults
  for _, name in ipairs(LEFT_OUT) do called[name] = nil end
  for name in pairs(called) do
    local now = attempt(server, before, run, { [name] = true })
    local rule = broken_rule(call, before, now, whole)
    if rule then return ("%s without %s: %s"):format(call.name, name:upper(), rule) end
  end
end

return refused_parts
