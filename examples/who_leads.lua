-- Shows who leads. Run it on several machines, and stop some of them.
--
--   lua examples/who_leads.lua [SECONDS]   as the leader, resigns this long after its start
--
-- Needs a Redis at redis://127.0.0.1:6379 or $HOLDFAST_URL.
local holdfast = require "holdfast"
local client = holdfast.new { name = "scheduler", lease = 10 }
local ends = os.time() + (tonumber(arg[1]) or math.huge)

client:lead("scheduler", {
  on_change = function(leader)
    local since = os.date("%X", math.floor(leader.since))
    print(("%s (pid %d) leads since %s"):format(leader.host or "?", leader.pid or 0, since))
  end,
}, function(term)
  while term:is_leader() and os.time() < ends do os.execute "sleep 0.2" end
  if term:is_leader() then term:resign() end
end)
client:close()
