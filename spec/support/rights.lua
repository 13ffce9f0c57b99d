-- The rights that holdfast acl gives to the user "locks", password "secret", for keys that begin
-- with "lock:".

local acl = require "holdfast.command.acl"

local rights = {}

local function rows(names)
  local list = {}
  for _, kind in ipairs(acl.kinds) do
    for _, name in ipairs(names) do
      if kind[1] == name then list[#list + 1] = kind end
    end
  end
  assert(#list == #names)
  return list
end

-- Returns the user's rule, beginning with the name. `more`: options of acl.rule_words
function rights.of(names, more)
  local given = { kinds = rows(names) }
  for name, value in pairs(more or {}) do given[name] = value end
  local words = { "locks" }
  for _, word in ipairs(acl.rule_words("lock:", given)) do words[#words + 1] = word end
  words[#words + 1] = ">secret"
  return words
end

-- Returns what the server has refused, except subscriptions, which may be: after a while a waiter
-- subscribes to Redisson's channels by a pattern.
function rights.refused(server)
  local list = {}
  for _, entry in ipairs(server:cli("ACL", "LOG")) do
    local listens = false
    for i = 1, #entry, 2 do
      listens = listens or entry[i] == "client-info" and entry[i + 1]:find("cmd=pu?n?subscribe")
    end
    if not listens then list[#list + 1] = entry end
  end
  return list
end

return rights
