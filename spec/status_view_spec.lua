-- What the status page knows of the locks, without nginx.

describe("the status page", function()
  it("reads each shown row once while requests show others, and says what it could not read", function()
    rawset(_G, "ngx", { now = os.time, log = function() end })
    local locks, status_view = require "holdfast.command.locks", require "holdfast.status_view"
    local now, reads = require("holdfast.core").now(), 0
    local function done() return true end
    local view = { client = { ping = done }, queues = { continue = done, scans = { {} } },
      locks = { scans = { { unread = 2 }, { unread = 1 } } }, latches = { unread = true },
      names = {}, shown = {}, entries = {}, queued = {}, seen = {}, by_age = {}, first = 1,
      last = 0, waiting = 0, requested_at = -math.huge, polled_at = -math.huge }
    for i = -100, -1 do
      view.shown[i] = now
      view.entries[i] = { key = i, read_at = 0, waiters = 0, scanned_name = i }
    end
    function locks.inspect() -- another request runs while this one reads
      reads = reads + 1
      for i = 1, 10 do view.shown[reads .. " " .. i] = now end
      return nil, "of another type", "conflict"
    end
    status_view.refresh(view)
    assert.same({ 100, nil }, { reads, next(view.entries) })
    assert.is_nil(status_view.outage(view))
    assert.matches("^left out: 3 names, .*; latches, ", status_view.describe_unread(view))
    view.queues.continue, view.polled_at = error, -math.huge -- as for a reply of the wrong type
    status_view.refresh(view)
    assert.matches("^a reply from the server was not understood", status_view.outage(view))
  end)
end)
