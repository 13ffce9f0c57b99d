-- What the status page knows of the locks, without nginx.

describe("the status page", function()
  it("reads each row on a screen once, even if requests show other rows meanwhile", function()
    rawset(_G, "ngx", { now = os.time })
    local locks, status_view = require "holdfast.command.locks", require "holdfast.status_view"
    local now, reads = require("holdfast.core").now(), 0
    local function done() return true end
    local view = { client = { ping = done }, queues = { continue = done }, locks = {}, names = {},
      shown = {}, entries = {}, queued = {}, seen = {}, by_age = {}, first = 1, last = 0, waiting = 0,
      requested_at = -math.huge, polled_at = -math.huge }
    for i = -100, -1 do
      view.shown[i], view.entries[i] = now, { key = i, read_at = 0, waiters = 0, scanned_name = i }
    end
    function locks.inspect() -- another request runs while this one reads
      reads = reads + 1
      for i = 1, 10 do view.shown[reads .. " " .. i] = now end
      return nil, "of another type", "conflict"
    end
    status_view.refresh(view)
    assert.same({ 100, nil }, { reads, next(view.entries) })
  end)
end)
