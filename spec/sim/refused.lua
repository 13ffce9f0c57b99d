-- The rules for schedules in which a server refuses commands for a while.
--
--   patience   a wait does not end before its time because of such a refusal, nor because of a
--              missing right once it has a place in the queue
--   late       what it refused to release is free, and what it refused to record is recorded, soon
--              after the last refusal, if the lease lasts until then; where nothing else goes wrong
local WORDS = { "NOREPLICAS ", "MISCONF ", "OOM ", "LOADING ", "BUSY ", "TRYAGAIN ", "CLUSTERDOWN ",
  "MASTERDOWN ", "READONLY " }
local OF_USER = { "NOAUTH ", "WRONGPASS ", "NOPERM ", "ERR The user executing the script " } -- no right
local CLOCKS = 0.98  -- how early a wait may end, by its process's clock
local SOON = 3000000 -- a release is retried each second, and the network may be slow;
local RECORDED = 1500000 -- a record, twice a second
local SLACK = 300000 -- how early a lease may end

local refused = {}

local function says_one(message, words)
  for _, word in ipairs(words) do
    if message and message:find(": " .. word, 1, true) then return true end
  end
  return false
end

-- Returns whether a message is such a refusal; accepted: of what the server has accepted before
function refused.says(message, accepted)
  return says_one(message, WORDS) or accepted and says_one(message, OF_USER) or false
end

local ENDS = { unreachable = true, server = true, denied = true }

-- In a plan without other faults, the client has received the reply that gave it the place.
local function has_place(task, key, asked_at)
  local placed_at = task.process.placed[key]
  return task.world.refusing and #task.process.tasks == 1 and placed_at and placed_at >= asked_at
end

-- entered: its caller already holds the lock, and does not wait
function refused.check_wait(task, key, wait, entered, asked_at, code, message)
  if not ENDS[code] or entered or task.process.closed then return end
  if not refused.says(message, has_place(task, key, asked_at)) then return end
  local took = task.world.now - asked_at
  if took < wait * 1e6 * CLOCKS then
    task.world:fail("patience", "%s: the wait of %s ends after %.3f s of %.14g: %s", key, task.name,
      took / 1e6, wait, message)
  end
end

-- Fails unless is_done() soon after the last refusal, or at the end of a lease with `left` seconds.
local function expect(task, left, soon, is_done, text)
  local world, process = task.world, task.process
  local server, till = world.refusing, world.now + left * 1e6 - SLACK
  local function check()
    if is_done() or process.dead or process.closed then return end
    local due = server.refuses_until + soon
    if due >= till then return end
    if world.now >= due then
      world:fail("late", "%s", text)
    else
      world:at(due, check)
    end
  end
  if server then check() end
end

-- A release failed, of a lock stored as a hash or a string.
function refused.expect_release(task, handle, left, message)
  if not refused.says(message, true) or handle.shared or not handle.owner then return end
  local owner, world = handle.owner, task.world
  expect(task, left, SOON, function()
    local entry = world.refusing.db.entries[handle.key]
    if not entry or entry.kind == "string" then return not entry or entry.value ~= owner end
    return entry.kind ~= "hash" or not entry.value.values[owner]
  end, ("%s: %s still has it behind its release"):format(handle.key, task.name))
end

function refused.expect_record(task, key, record, left, message)
  if not refused.says(message, true) then return end
  local recorded = task.watcher.recorded
  expect(task, left, RECORDED, function() return recorded[record] end,
    ("%s: the record of %s is not written"):format(key, task.name))
end

return refused
