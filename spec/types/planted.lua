-- An example with ten mistakes that a checker finds by the annotations. Behind each is what must be
-- replaced by what, and without them the checker finds nothing: spec/types/checker_types.lua.

local holdfast = require "holdfast"

local both = { "redis://a", "redis://b" }
local client = holdfast.new { servers = both, mode = "quorums" } -- quorums → shards
local short = holdfast.new { lease = "30" } -- "30" → 30

local lock = short:lock("report", {
  on_event = function(event)
    if event.event == "aquired" then -- aquired → acquired
      print(event.key, event.seconds)
    elseif event.evnt == "busy" then -- evnt → event
      print(event.key, event.host)
    end
  end,
  on_lost = function(lost, reason)
    if reason == "evicted" then -- evicted → expired
      print(lost:key(), "was not renewed in time")
    end
  end,
})

local held, message, code = lock:acquire("5") -- "5" → 5
if not held then
  if code == "bussy" then -- bussy → busy
    print "somebody else is writing the report"
  end
  error(message)
end
lock:extend() -- () → (60)
lock:relase() -- relase → release

local permit = client:semaphore("printers", { permits = 3 }):acquire()
permit:release() -- permit:release() → if permit then permit:release() end
