-- Code shared by all event loops: begins an operation in the core, lets its caller wait, and ends
-- it.
--
-- Each client has a pump. While anything is in progress, the pump has a task: a coroutine of the
-- loop that does what is due and wakes the callers whose operations have ended. Only the task
-- anchors the client. The loop's `io` handles the connections: see holdfast.loop.descriptors and
-- holdfast.loop.cosockets.

local core = require "holdfast.core"
local credentials = require "holdfast.credentials"
local locale = require "holdfast.locale"
local error_text = require("holdfast.compat").error_text
local shown = require("holdfast.text").shown

local engine, raw = core.engine, core.lock
local now = core.now

local CHECK_EVERY = 1 -- seconds between checks of the waiters
local MAX_FAILURES = 3 -- tasks in a row that fail before they have waited once

local pump = {}

-- client -> pump; only a pump with a task knows its client
local pumps = setmetatable({}, { __mode = "k" })

-- Returns the client's pump in this loop. A forked child gets a new one.
function pump.of(client, loop)
  local self, process = pumps[client], loop.process and loop.process()
  if self and self.process == process then return self end
  self = {
    loop = loop, process = process, waiting = {}, done = {}, actions = {}, approvals_requested = 0,
    approvals_given = 0, links = {}, spare = {}, failures = 0, woken_count = 0, is_last = false,
    deadline = math.huge, sleeps_until = 0,
  }
  pumps[client] = self
  return self
end

-- Returns a message that names the key and the server, like the core's messages.
local function failure_message(kind, lock, why)
  local verb, server = core.operations[kind], core.client.server(raw.data(lock).client)
  local key = (kind == "ping" or kind == "command") and ""
    or (' "%s"'):format(shown(raw.key(lock)))
  return ("cannot %s%s on %s: %s"):format(verb, key, server, why)
end

-- ---- waiters ----

-- Fires a signal. Catches errors from the loop, so that the other callers are still woken.
local function fire(self, signal)
  self.loop.report(pcall(signal.fire, signal))
end

-- ---- one iteration of the loop ----
--
-- All commands of one iteration of the loop are sent together, in one write per connection. Most
-- callers send a command right after the task has woken them together with others: each of them
-- leaves its command to the last one. A caller that was not woken sends its command at once if no
-- other call is waiting; otherwise, it leaves the command to the task, which runs at the end of the
-- iteration and sends the rest. Under ngx_lua, a thread that runs after all callers sends them.

-- Called when this waiter's caller continues, or when it never will.
local function mark_continued(self, waiter)
  if not waiter.woken then return end
  waiter.woken, self.woken_count = false, self.woken_count - 1
  self.is_last = self.woken_count == 0
end

-- Called when a caller has begun an operation. Sends its command, now or at the iteration's end.
-- `at_once`: the caller does not wait for the operation, so it may keep the loop from running.
local function send(self, at_once)
  local io = self.loop.io
  if not self.client then return end
  local sends = at_once or self.woken_count == 0 and (self.is_last or not next(self.waiting))
  self.is_last = false
  if sends then io.send(self) else io.defer_output(self) end
end

-- Marks as woken the waiter whose caller must be woken because this waiter's operation has ended.
-- → that waiter | false if its caller has already been woken
local function mark_woken(self, waiter)
  local main = waiter.main or waiter
  if main.fired then return false end
  main.fired, main.woken, self.woken_count = true, true, self.woken_count + 1
  return main
end

local function wake(self, waiter)
  local main = mark_woken(self, waiter)
  if main then fire(self, main.ready) end
end

-- → a new signal | nil, why the loop cannot create one
local function new_signal(loop)
  local created, signal = pcall(loop.signal)
  if created then return signal end
  return nil, error_text(signal)
end

-- Wakes the callers of the operations in `done`, which have ended. A caller may run at once and
-- begin other operations, so all of them are counted first.
function pump.wake_done(self)
  local done, waiting = self.done, self.waiting
  if not done[1] then return end
  self.done = {}
  for i, number in ipairs(done) do
    local waiter = waiting[number]
    done[i] = false
    if waiter and waiter.ready then
      waiter.done = true
      done[i] = mark_woken(self, waiter)
    elseif waiter then
      waiting[number] = nil
      self.loop.report(waiter.op:finish()) -- the operation has no caller
    end
  end
  for _, waiter in ipairs(done) do
    if waiter and waiter.woken then fire(self, waiter.ready) end
  end
end

local REPLACED = "ngx.ctx was replaced while this request was waiting; set fields in it instead"
local OVERDUE = "the calling coroutine was woken but did not continue within a second; the call is treated as cancelled"

-- Abandons the operation that runs alongside this waiter's.
local function end_companion(self, waiter)
  local companion = waiter.companion
  waiter.companion = false
  if not companion or self.waiting[companion.number] ~= companion then return end
  self.waiting[companion.number] = nil
  self.loop.owner.set_waiting(companion, false)
  companion.op:abandon()
end

-- Abandons an operation whose caller is gone, with the lock that it may have acquired. `why`: a
-- message for a caller that continues nevertheless.
function pump.abandon(self, number, waiter, why)
  self.waiting[number] = nil
  mark_continued(self, waiter)
  waiter.abandoned = why or waiter.done and OVERDUE or REPLACED
  self.loop.owner.set_waiting(waiter, false)
  waiter.op:abandon()
  end_companion(self, waiter)
end

-- Returns whether the caller was woken but has not continued. It must have been cancelled, which
-- its coroutine's status does not show. The loop may be late, so this takes two checks, a second
-- apart.
local function is_overdue(waiter)
  if not waiter.done then return false end
  waiter.seen_at = waiter.seen_at or now()
  return now() >= waiter.seen_at + CHECK_EVERY
end

-- Abandons the waits of callers that are gone, so that the next waiter can acquire the lock.
local function abandon_dead(self)
  local is_there = self.loop.owner.alive_check()
  for number, waiter in pairs(self.waiting) do
    local gone = waiter.ready and (not is_there(waiter) or is_overdue(waiter))
    if gone then pump.abandon(self, number, waiter) end
  end
end

-- ---- the task ----

local function is_busy(client)
  local operations, held, leaving = engine.load(client)
  return operations + held + leaving > 0
end

local function has_ended(self, client)
  local operations, held, leaving = engine.load(client)
  return self.loop.is_over(self, client, operations, held, leaving)
end

-- Returns whether the task may end: the loop's is_over returns true, and no result is left for a
-- caller that is gone.
local function may_end(self, task)
  if not has_ended(self, self.client) then return false end
  if not next(self.waiting) then return true end
  abandon_dead(self)
  self.loop.io.advance(self)
  return self.task ~= task or has_ended(self, self.client)
end

local listeners = {} -- functions (client, last)

-- Adds a listener: each client's task calls listener(client, last) whenever it has done what was
-- due. `last`: whether the task is ending. A listener must not wait. Its errors are reported.
function pump.listen(listener)
  listeners[#listeners + 1] = listener
end

local function notify_listeners(self, last)
  for _, listener in ipairs(listeners) do self.loop.report(pcall(listener, self.client, last)) end
end

local notifiers = {} -- objects of holdfast.notifier

-- Makes the tasks check from now on whether the notifiers in this list, which may grow, have
-- something to report.
function pump.set_notifiers(list)
  notifiers = list
end

-- Calls the user's functions in a new coroutine. The task must not wait for them, because they may
-- need the task.
local function notify_soon(self, notifier)
  local loop = self.loop
  notifier.runs_by = now() + loop.runs_within
  loop.spawn(function()
    notifier.runs_by = 0
    loop.report(notifier:notify())
  end)
end

local function notify_due(self)
  for _, notifier in ipairs(notifiers) do
    if now() >= notifier.runs_by and notifier:is_due() then
      self.loop.report(pcall(notify_soon, self, notifier))
    end
  end
end

local function fetch_for(client, loop, link)
  local server, refused = engine.ask_login(client, link)
  loop.spawn(function()
    credentials.log_in(client, link, nil, server, refused)
    engine.wake(client)
  end)
end

-- Calls the user's function in a new coroutine. The task must not wait for it, because it may need
-- the loop. Under ngx_lua, the link's reader calls it instead.
local function fetch_credentials(self)
  local client, loop = self.client, self.loop
  if not loop.settings.uses_event_loop or not credentials.has_fetcher(client) then return end
  local link = engine.next_login(client)
  while link do
    fetch_for(client, loop, link)
    link = engine.next_login(client)
  end
end

-- Returns whether a new task should take over the work.
local function must_be_replaced(self)
  local io = self.loop.io
  return io.must_be_replaced and not self.closing and io.must_be_replaced(self)
end

local function tend(self, task)
  local io, checked_at = self.loop.io, now()
  task.links = io.begin(self)
  repeat
    self.runs_by = math.huge
    io.tend(self) -- may wait briefly
    self.runs_by = math.huge
    if now() >= checked_at + CHECK_EVERY then
      checked_at = now()
      if next(self.waiting) then abandon_dead(self) end
      io.advance(self)
    end
    if self.task ~= task then return end
    notify_listeners(self, false)
    fetch_credentials(self)
    notify_due(self)
    if self.task ~= task or may_end(self, task) or must_be_replaced(self) then return end
    io.sleep(self, next(self.waiting) and CHECK_EVERY or math.huge)
    self.failures = 0
  until self.task ~= task
end

-- Ends the task. Does not wait, so no operation can begin before this returns.
local function stop(self)
  local client, closed_signal = self.client, self.closed_signal
  notify_listeners(self, true)
  self.loop.report(pcall(self.loop.io.stop, self))
  self.task, self.client, self.closed_signal = nil, nil, nil
  if self.closing then self.loop.io.close(client) end
  for _, notifier in ipairs(notifiers) do notifier:collect() end -- the client may be collected next
  if closed_signal then fire(self, closed_signal) end
  if self.loop.check() then notify_due(self) end
end

-- Returns whether too many tasks in a row have failed, so that no new one is started.
local function is_broken(self)
  return not self.task and self.failures >= MAX_FAILURES
end

-- Starts a new task for what is still in progress, unless tasks keep failing, the client is being
-- closed, or the process is exiting and has no time left.
local function start_next(self, client)
  if is_broken(self) or self.closing or not is_busy(client) then return end
  if not has_ended(self, client) then pump.start_detached(self, client) end
end

-- Wakes all callers. A caller may run at once and change the table of waiters, so this copies it.
local function wake_all(self)
  local numbers = {}
  for number in pairs(self.waiting) do numbers[#numbers + 1] = number end
  for _, number in ipairs(numbers) do
    local waiter = self.waiting[number]
    if waiter and waiter.ready then wake(self, waiter) end
  end
end

local function fail(self, message)
  local client = self.client
  if self.closing then
    self.loop.close_at_once(self, client, math.max(0, self.close_by - now()))
  end
  stop(self)
  self.last_failure, self.failures = error_text(message), self.failures + 1
  self.loop.report(nil, message)
  start_next(self, client)
  wake_all(self)
end

local function run(self, task)
  if self.task ~= task then return end
  local client = self.client
  local tended, message = pcall(tend, self, task)
  if self.task ~= task then return self.loop.io.end_abandoned(task.links) end
  if not tended then return fail(self, message) end
  stop(self)
  start_next(self, client)
end

-- Starts a task unless there is one. → true | nil, why there is none
function pump.start(self, client)
  if self.task then return true end
  local task = {}
  self.task, self.client, self.runs_by, self.idle_until = task, client, now()
    + self.loop.runs_within, nil
  self.last_failure = nil
  -- the task may run, and even end, at once
  local begun, message = self.loop.begin(self, function() run(self, task) end)
  if begun and (self.task or not self.last_failure) then return true end
  if not begun then self.task, self.client, self.last_failure = nil, nil, message end
  return nil, self.last_failure
end

-- Must be called after every change of the core's state.
local function advance(self)
  if self.client then self.loop.io.advance(self) end
end

local NO_TASK = "cannot start a %s: "

local function no_task(self, message)
  return NO_TASK:format(self.loop.task or "task") .. message
end

local function is_late(self)
  return self.task ~= nil and now() > self.runs_by
end

-- Restarts the task for a waiter, if the task has not begun or has ended with an error. The loop
-- may have been delayed, so this fails only if a second task does not begin in time, or if three
-- tasks in a row have ended with an error before they have waited. → true | nil, why there is no
-- task
local function revive(self, client, waiter)
  if is_broken(self) then return nil, self.last_failure end
  if is_late(self) then
    stop(self)
    if waiter.late then return nil, self.loop.late_message() end
    waiter.late = true
  elseif self.task and self.runs_by == math.huge then
    self.runs_by = now() + self.loop.runs_within
    self.loop.io.wake(self)
  end
  local started, message = pump.start(self, client)
  if started then advance(self) end
  return started, message
end

-- Starts a task without a waiter. → whether it has begun
function pump.start_detached(self, client)
  local started, message = pump.start(self, client)
  if started then advance(self) else self.loop.report(nil, no_task(self, message)) end
  return started
end

-- ---- operations ----

local MAX_LATENESS = 0.02 -- seconds; if a wait ends this late, the loop was blocked

-- A pump's field `spare` contains the waiters of ended calls, for reuse together with their
-- operations, which keep their numbers, so that the table `waiting` need not grow. A waiter's
-- fields are op, owner, done and:
--   ready      the signal that wakes the caller
--   fired      whether it was fired
--   woken      whether it was fired, and the caller has not continued yet
--   seen_at    when a check first found that the woken caller had not continued
--   late       whether a task that it needs has not begun in time
--   abandoned  why its operation was abandoned, or false
--   leader_term  the leader's term, if this is a wait to become leader, which ends when the leader
--              resigns or nginx's worker exits
--   companion  the waiter of the operation that runs alongside
--   main       in a companion: the waiter whose caller it wakes
local MAX_SPARE = 1000

local function new_waiter(self)
  local spare = self.spare
  local last = #spare
  local waiter = spare[last] or { op = false, ready = false, fired = false, woken = false,
    owner = false, done = false, seen_at = false, late = false, abandoned = false,
    leader_term = false, companion = false, main = false }
  spare[last] = nil
  return waiter
end

-- Keeps a waiter for reuse, after its operation has finished.
local function spare_waiter(self, waiter)
  local spare = self.spare
  if waiter.abandoned or #spare >= MAX_SPARE then return end
  waiter.ready, waiter.owner, waiter.done, waiter.late = false, false, false, false
  waiter.seen_at, waiter.leader_term, waiter.fired, waiter.main = false, false, false, false
  spare[#spare + 1] = waiter
end

local function is_over(waiter)
  return waiter.abandoned or waiter.done or waiter.op:is_done()
end

-- Begins the next operation that runs alongside this waiter's (see driver.run_alongside). `...`:
-- the previous operation's results.
local function begin_companion(self, lock, waiter, ...)
  local companion = new_waiter(self)
  local kind, seconds, record = raw.data(lock).next_companion(...)
  notify_due(self)
  if not kind then return end -- the wait has ended
  companion.op, companion.number = raw.begin(lock, kind, seconds, record, companion.op or nil)
  companion.main, companion.ready, companion.owner = waiter, waiter.ready, waiter.owner
  waiter.companion, self.waiting[companion.number] = companion, companion
  self.loop.owner.set_waiting(companion, true)
  send(self)
end

local function tend_companion(self, lock, waiter)
  local companion = waiter.companion
  if not is_over(companion) then return end
  if companion.abandoned then return begin_companion(self, lock, waiter) end
  self.waiting[companion.number] = nil
  self.loop.owner.set_waiting(companion, false)
  begin_companion(self, lock, waiter, companion.op:finish())
  spare_waiter(self, companion)
end

-- Called when a wait that should end at `deadline` has ended. If it is late, the loop was blocked,
-- and a task that has not begun could not run, so it gets more time.
local function update_task_deadline(self, deadline)
  local awaits_task = self.runs_by ~= math.huge
  local was_blocked = now() > deadline + MAX_LATENESS
  if awaits_task and was_blocked then self.runs_by = now() + self.loop.runs_within end
end

-- Waits until the operation has ended. If the loop raises an error, abandons the operation and
-- raises the error again. → whether the signal was fired
local function await(self, waiter, number)
  local ready = waiter.ready
  local seconds = self.runs_by == math.huge and CHECK_EVERY or self.loop.runs_within
  local deadline = now() + seconds
  local waited, fired = pcall(ready.wait, ready, seconds)
  mark_continued(self, waiter)
  if waited then
    update_task_deadline(self, deadline)
    return fired
  end
  if ready.free then ready:free() end
  if not waiter.abandoned then pump.abandon(self, number, waiter) end
  advance(self)
  error(fired, 0)
end

-- Waits until the operation is over. → true | nil, why, code
local function wait(self, data, lock, kind, waiter, number)
  local client, loop = data.client, self.loop
  local over, can_wait, message
  waiter.ready, message = new_signal(loop)
  if not waiter.ready then
    waiter.ready = false
    waiter.op:finish()
    return nil, no_task(self, message), "unreachable"
  end
  self.waiting[number] = waiter
  loop.owner.set_waiting(waiter, true)
  if kind == "acquire" and data.next_companion then begin_companion(self, lock, waiter) end
  repeat
    local fired = await(self, waiter, number)
    can_wait, over = true, is_over(waiter)
    -- woken because the task has ended too early, or the operation alongside is over
    if fired and not over then
      local signal
      signal, message = new_signal(loop)
      can_wait, waiter.ready, waiter.fired = signal ~= nil, signal or waiter.ready, false
    end
    if can_wait and waiter.companion and not over then tend_companion(self, lock, waiter) end
    if can_wait and not over then can_wait, message = revive(self, client, waiter) end
  until over or not can_wait or is_over(waiter)
  mark_continued(self, waiter) -- it may have been woken while it was not waiting
  end_companion(self, waiter)
  if waiter.ready.free then waiter.ready:free() end
  if waiter.abandoned then return nil, waiter.abandoned, "interrupted" end
  self.waiting[number] = nil
  loop.owner.set_waiting(waiter, false)
  if is_over(waiter) then return true end
  waiter.op:finish()
  return nil, no_task(self, message), "unreachable"
end

-- Returns the level, as for error, of the first Lua function that is not holdfast's.
local function level_of_caller()
  local root = debug.getinfo(1, "S").source:match("^(.*)loop[/\\]pump%.lua$")
  for level = 2, 20 do
    local info = debug.getinfo(level, "S")
    local is_ours = info and (info.what == "C" or info.what == "tail" -- Lua 5.1
      or info.source:sub(1, #root) == root)
    if not is_ours then return level - 1 end
  end
  return 1
end

-- Raises an error that blames the first caller outside holdfast.
function pump.raise(message)
  error(message, level_of_caller())
end

local RESUMED = "holdfast: a coroutine that was waiting for the server was resumed, but not by"
  .. " the event loop (for example, because a `for` loop used the coroutine as an iterator)"

-- Raises an error that blames the caller, whose coroutine was resumed before its wait was over.
-- `advice`: the end of the message, or nil.
function pump.raise_resumed(advice)
  pump.raise(RESUMED .. (advice or ""))
end

local function check(loop, kind)
  local can_wait, where = loop.check()
  if can_wait then return end
  pump.raise(("holdfast: cannot %s here: the call has to wait for the server, which is impossible %s")
    :format(core.operations[kind], where))
end

-- Runs a call's operation, which has begun, to its end. → the operation's results
local function drive(self, data, lock, kind, waiter, number, done)
  local client, op = data.client, waiter.op
  local needs_no_task = kind ~= "release" or self.closing
  if done and needs_no_task then return op:finish() end
  local started, message = pump.start(self, client)
  if not started then
    op:finish()
    return nil, failure_message(kind, lock, no_task(self, message)), "unreachable"
  end
  local detaches = kind == "release" and data.async_release
  send(self, detaches)
  if detaches then
    local sent, why, code = op:detach()
    if sent ~= false then return sent, why, code end
  end
  if not done and not op:is_done() then
    local ended, why, code = wait(self, data, lock, kind, waiter, number)
    if not ended then return nil, failure_message(kind, lock, why), code end
  end
  if kind == "acquire" and is_broken(self) then
    op:abandon() -- nothing would renew the lock after that
    return nil, failure_message(kind, lock, no_task(self, self.last_failure)), "unreachable"
  end
  return op:finish()
end

-- Called when a call has ended with these results.
local function settle(self, lock, kind, waiter, ...)
  self.loop.owner.record_result(self, lock, kind, waiter.owner, (...))
  spare_waiter(self, waiter)
  return ...
end

-- Prepares a call. → the pump, a waiter
local function prepare_call(data, kind)
  local loop = data.loop
  check(loop, kind)
  local self = pump.of(data.client, loop)
  local waiter = new_waiter(self)
  waiter.owner = loop.owner.begin_call(self)
  return self, waiter
end

-- Does the same as the core's blocking call, but makes only the caller's coroutine wait. `data`:
-- the lock's data.
function pump.call(data, lock, kind, seconds, record)
  local self, waiter = prepare_call(data, kind)
  waiter.leader_term = kind == "acquire" and data.leader_term or false
  local op, number, done = raw.begin(lock, kind, seconds, record, waiter.op or nil)
  waiter.op = op
  return settle(self, lock, kind, waiter, drive(self, data, lock, kind, waiter, number, done))
end

local function settle_all(self, locks, kind, owner, ...)
  for _, lock in ipairs(locks) do self.loop.owner.record_result(self, lock, kind, owner, (...)) end
  return ...
end

-- Acquires or releases several locks of one client atomically. `kind`: "acquire" or "release".
function pump.call_all(locks, kind)
  local lock = locks[1]
  local data = raw.data(lock)
  local self, waiter = prepare_call(data, kind)
  local op, number, done = raw.begin_all(locks, kind .. "_all")
  waiter.op = op
  return settle_all(self, locks, kind, waiter.owner,
    drive(self, data, lock, kind, waiter, number, done))
end

-- Starts a release or a complete without waiting for it. Reports a failure.
function pump.detach(lock, kind, seconds, record)
  local data = raw.data(lock)
  local self = pump.of(data.client, data.loop)
  local op, number = raw.begin(lock, kind, seconds, record)
  self.waiting[number] = { op = op, lock = lock }
  pump.start_detached(self, data.client)
end

-- → seconds | nil, message, code
function pump.ping(client, loop)
  local lock = raw.new(client, { client = client, loop = loop, key = "ping", lease = 1, wait = 0,
    token_ttl = 0 })
  local began_at = now()
  local answered, message, code = pump.call(raw.data(lock), lock, "ping")
  if not answered then return nil, message, code end
  return now() - began_at
end

-- Does the same as core.client.command.
function pump.command(client, loop, words, node, within)
  local lock = raw.new(client, { client = client, loop = loop, key = "command", lease = 1, wait = 0,
    token_ttl = 0, within = within })
  local texts = {}
  for i, word in ipairs(words) do texts[i] = locale.text(word) end
  return pump.call(raw.data(lock), lock, "command", node or 0, texts)
end

-- Begins to close the client. → whether it is already closed, because there was no task and nothing
-- to release
function pump.begin_close(self, client)
  if next(self.waiting) then abandon_dead(self) end
  engine.close(client)
  if self.task or not engine.is_quiet(client) then return false end
  self.loop.io.close(client)
  return true
end

-- Closes the client. If the caller can wait, waits up to `patience` seconds for the server.
function pump.close(client, loop, patience)
  local self, limit = pump.of(client, loop), now() + patience
  self.closing, self.close_by = true, limit
  if not loop.check() then return loop.close_at_once(self, client, patience) end
  if pump.begin_close(self, client) then return end
  if not pump.start_detached(self, client) then
    return loop.close_at_once(self, client, patience)
  end
  loop.io.wake(self)
  if self.closed_signal then return end
  local signal, message = new_signal(loop)
  if not signal then return loop.report(nil, message) end
  self.closed_signal = signal
  while self.task and not is_late(self) and now() < limit do signal:wait(self.loop.runs_within) end
  if is_late(self) then
    loop.close_at_once(self, client, patience)
    stop(self)
  end
end

-- Ends the wait to become leader for this term. The task, which is running, then removes it from
-- the queue.
function pump.interrupt(self, term)
  for number, waiter in pairs(self.waiting) do
    if waiter.leader_term == term then
      pump.abandon(self, number, waiter, "the leader has resigned")
      advance(self)
      return wake(self, waiter)
    end
  end
end

-- Abandons the waiting calls for which must_end(waiter) returns true, and adds their clients to
-- `touched`.
function pump.abandon_all(must_end, touched, why)
  for client, self in pairs(pumps) do
    for number, waiter in pairs(self.waiting) do
      if must_end(waiter) then
        pump.abandon(self, number, waiter, why)
        touched[client] = self.loop
      end
    end
  end
end

return pump
