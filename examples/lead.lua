-- A nightly leader: run this on several machines. One of them does each night's work; if it dies,
-- another takes over after the lease.
--
--   lua examples/lead.lua [SECONDS [NIGHTS]]   SECONDS: the length of a night, to try it; NIGHTS:
--                                              resigns after that many of its own
--
-- Needs a Redis at redis://127.0.0.1:6379 or $HOLDFAST_URL.
local holdfast = require "holdfast"
local client = holdfast.new { name = "nightly", lease = 10 }

local night, left = tonumber(arg[1]) or 86400, tonumber(arg[2]) or math.huge

-- The store should keep the token and refuse a lower one, because a leader that was paused in this
-- function may write late.
local function report(term, number)
  print(("night %d: written with token %d"):format(number, term:token()))
end

client:lead("nightly", function(term)
  print "leader"
  while term:is_leader() and left > 0 do
    local number = math.floor(os.time() / night)
    -- Each night is done once, under any leader; a night that failed is done again.
    local done = client:idempotent("nightly:" .. number, { expire = 2 * night }, report, term,
      number)
    if done then left = left - 1 end
    os.execute "sleep 0.2"
  end
  if left <= 0 then term:resign() end
end)
client:close()
