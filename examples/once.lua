-- Every host starts this job at each fire of one schedule, and one of them runs it. Here two
-- clients stand for two hosts, with three fires, one second apart. Needs a Redis at
-- redis://127.0.0.1:6379 or $HOLDFAST_URL.
local holdfast = require "holdfast"
local hosts = { holdfast.new { name = "east" }, holdfast.new { name = "west" } }
local key = ("report:%d-%d"):format(os.time(), math.random(1e6))
local runs = 0

local function report(lock)
  runs = runs + 1
  return ("report %d, token %s"):format(runs, lock:token_text())
end

for fire = 1, 3 do
  for _, client in ipairs(hosts) do
    local result, message = client:once(key, 1, report)
    print(fire, result or message)
  end
  os.execute "sleep 1" -- until the next fire
end

print("reports made", runs)
for _, client in ipairs(hosts) do client:close() end
