-- Describes a holder or waiter by host, pid and name.

local names = require "holdfast.names"

local identity = { read = names.read }

function identity.text(who)
  if not who then return nil end
  return ("%s pid %s%s"):format(who.host, who.pid, who.name and " " .. who.name or "")
end

return identity
