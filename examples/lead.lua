-- A nightly leader: run this on as many machines as you like. One of them does each night's work;
-- when it dies, another one goes on after the lease.
--
--   lua examples/lead.lua [SECONDS [NIGHTS]]   a night of so many seconds, to try it; resigns after
--                                              so many of its own
--
-- Needs a Redis: redis://127.0.0.1:6379, or the one that $HOLDFAST_URL names.
local holdfast = require "holdfast"
local client = holdfast.new { name = "nightly", lease = 10 }

local night, left = tonumber(arg[1]) or 86400, tonumber(arg[2]) or math.huge

-- The store should keep the token and refuse a lower one: a leader that was stopped in here may
-- come late.
local function report(term, number)
  print(("night %d: written with token %d"):format(number, term:token()))
end

client:lead("nightly", function(term)
  print "leader"
  while term:is_leader() and left > 0 do
    local number = math.floor(os.time() / night)
    -- Whoever led before, each night is done once; one that failed is done again.
    local done = client:idempotent("nightly:" .. number, { expire = 2 * night }, report, term,
      number)
    if done then left = left - 1 end
    os.execute "sleep 0.2"
  end
  if left <= 0 then term:resign() end
end)
client:close()
