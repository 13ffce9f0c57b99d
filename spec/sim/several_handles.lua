-- A caller with several handles of one lock: it enters and releases through any of them, and drops
-- some without releasing. Now and then it abandons a release.
--
-- It holds what it acquired, minus what it released, minus what dropped handles had acquired and
-- not released. A release through a handle that has acquired nothing, called a stray, releases what
-- another handle has acquired.

local core = require "holdfast.core"

local raw, operation = core.lock, core.operation
local collect = core.lock_type.__gc
local min = math.min

local several_handles = {}

-- ---- what can be acquired ----

local function forget(book)
  book.has, book.of, book.strays = 0, {}, 0
end

local function note_release(book, handle)
  local of = book.of[handle] or 0
  if of > 0 then book.of[handle] = of - 1 else book.strays = book.strays + 1 end
  book.has = book.has - 1
  if book.has == 0 then forget(book) end
end

local function note_drop(book, handle)
  local of = book.of[handle] or 0
  local released = min(of, book.strays)
  book.strays, book.of[handle] = book.strays - released, nil
  book.has = book.has - (of - released)
  if book.has == 0 then forget(book) end
end

-- ---- steps ----

local function new_handle(round, place)
  local handle = round.tools.new_handle(place)
  handle.witness = round.witness
  return handle
end

local function handle_at(round, place)
  local handle = round.handles[place]
  if not handle or handle.gone then handle = new_handle(round, place) end
  round.handles[place] = handle
  return handle
end

-- Returns whether nothing can have taken the hold away from the caller.
local function is_certain(round)
  return round.certain and round.task.watcher.calm and not round.task.process.closed
end

-- From now on it is unknown what each handle has acquired.
local function lose_count(round)
  forget(round.book)
  round.book.has, round.certain = raw.holds(round.witness.lock), false
  round.over = round.book.has > 0
end

-- A detached release counts before the client knows its result.
local function check(round)
  local task, book = round.task, round.book
  if task.plan.async then return end
  local has = raw.holds(round.witness.lock)
  if has == book.has then return end
  if is_certain(round) then
    task.world:fail("handles", "%s: %s has %d holds, and should have %d", round.witness.key,
      task.name, has, book.has)
  end
  lose_count(round)
end

local steps = {}

function steps.acquire(round, place)
  local book, wait = round.book, round.task.plan.wait
  local handle, entered = handle_at(round, place), book.has > 0
  local ok, code = round.tools.acquire(round.task, handle, entered and min(wait, 5) or wait)
  if ok then
    book.has, book.of[handle] = book.has + 1, (book.of[handle] or 0) + 1
  elseif entered and is_certain(round) then
    round.task.world:fail("handles", "%s: %s has it, and cannot enter it: %s", handle.key,
      round.task.name, code)
  else
    round.certain = false
  end
end

-- Returns whether the next release is that of the last hold. The client may count fewer holds than
-- the book, as a detached release does not report that the hold was lost.
local function is_last(round)
  return min(round.book.has, raw.holds(round.witness.lock)) <= 1
end

-- A handle whose own hold was lost releases nothing, and reports the loss.
local function release(round, handle)
  local book = round.book
  local had = book.has
  local last = is_last(round) and not raw.lost(handle.lock)
  local ok = round.tools.release(round.task, handle, last)
  if ok and had > 0 then
    note_release(book, handle)
  elseif ok or had > 0 then
    if is_certain(round) then
      round.task.world:fail("handles", "%s: %s has %d holds, and its release says %s", handle.key,
        round.task.name, had, tostring(ok))
    end
    lose_count(round)
  end
end

function steps.release(round, place) release(round, handle_at(round, place)) end

function steps.drop(round, place)
  local handle, book = handle_at(round, place), round.book
  local has = book.has
  note_drop(book, handle)
  if has > 0 and book.has == 0 then round.tools.unclaim(round.task, handle) end
  handle.gone = true
  collect(handle.lock)
end

-- An abandoned release continues.
function steps.abandon(round, place, duration)
  local book, handle = round.book, handle_at(round, place)
  if book.has == 0 or raw.lost(handle.lock) then return end
  if is_last(round) then round.tools.unclaim(round.task, handle) end
  local op = round.tools.begin_release(round.task, handle)
  note_release(book, handle)
  round.tools.sleep(round.task, duration)
  operation.abandon(op)
end

function steps.nap(round, duration)
  round.tools.sleep(round.task, duration)
end

-- Releases all that the caller still has, through handles that have acquired nothing.
local function end_round(round)
  for _ = 1, 20 do
    local has = round.task.plan.async and round.book.has or raw.holds(round.witness.lock)
    if has == 0 then return end
    release(round, new_handle(round))
  end
end

-- One round of a task whose plan has `steps`, a list of { step, place | duration, how long an
-- abandoned release was awaited }.
--
-- witness: a handle that acquires nothing; tools: { new_handle, acquire, release, begin_release,
-- unclaim, sleep } of task.lua
function several_handles.round(task, witness, tools)
  local plan = task.plan
  local round = { task = task, witness = witness, tools = tools, handles = {}, book = {},
    certain = plan.renewed and not plan.extend and not plan.async
      and not task.process.plan.needs_approval }
  forget(round.book)
  for _, step in ipairs(plan.steps) do
    if round.over then break end
    steps[step[1]](round, step[2], step[3])
    task:check_now()
    check(round)
  end
  end_round(round)
  check(round)
  for place in pairs(round.handles) do
    if not round.handles[place].gone then steps.drop(round, place) end
  end
end

return several_handles
