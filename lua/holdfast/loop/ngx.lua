-- The loop of nginx with ngx_lua. A caller waits on a semaphore; a client's task, readers and
-- writers are light threads.
--
-- A light thread ends with its request, so tasks run in timers, each of which is a separate
-- request. A worker can run only a few timers, so each one takes up to MAX_TIMER_TASKS tasks, and
-- ends with the last task.
--
-- Each request has a mark: a table in its ngx.ctx, which ngx_lua always drops when the request
-- ends. A hold is renewed only while the mark of the request that acquired it exists.

local core = require "holdfast.core"
local cosockets = require "holdfast.loop.cosockets"
local pump = require "holdfast.loop.pump"
local shared_metrics = require "holdfast.shared_metrics"
local error_text = require("holdfast.compat").error_text
local timer = require "holdfast.timer"

local ffi = require "ffi"
local base = require "resty.core.base"
local semaphore = require "ngx.semaphore"

pump.listen(shared_metrics.add)

local raw = core.lock
local now, get_phase, exiting, running = core.now, ngx.get_phase, ngx.worker.exiting,
  coroutine.running
local contexts = debug.getregistry().ngx_lua_ctx_tables
local get_request = base.get_request

if not contexts then
  error("holdfast: cannot find ngx.ctx in this version of lua-resty-core", 0)
end

local MAX_IDLE_TIME = 60 -- seconds for which an idle task continues
local MAX_IDLE_TASKS = 16 -- with more tasks, one for a one-request client does not idle
local MAX_TIMER_TASKS = 100 -- maximum number of tasks in one timer
-- After SOFT_MAX_DIALS connections, a timer's tasks move to a new timer, because ngx_lua frees a
-- connection's memory only with the timer. After HARD_MAX_DIALS, they move even if that breaks
-- connections.
local SOFT_MAX_DIALS, HARD_MAX_DIALS = 200, 2000
local EXIT_TIME = 1 -- seconds that an exiting worker spends on cleaning up
-- No task idles if the process has more Lua states than this: with lua_code_cache off, each request
-- creates a state.
local MAX_LUA_STATES = 2
local MARK_FIELD = "holdfast" -- the field of ngx.ctx that contains the mark
local FOREVER = 86400 -- seconds

local RUNS_WITHIN = 0.25 -- seconds within which a timer should begin

-- Has the functions of holdfast.loop.owner, and others that only requests need.
local owner = {}

local loop = {
  name = "ngx_lua", driver = "resty", task = "timer", runs_within = RUNS_WITHIN, owner = owner,
  settings = { external = true, needs_approval = true }, -- for core.client.new
}

-- ---- the calling request ----

local WORKER = 1 -- the number that stands for the worker itself as an owner
local PHASES_WITHOUT_REQUEST = { init = true, init_worker = true, exit_worker = true }

local marks = setmetatable({}, { __mode = "v" }) -- request's address -> its mark
-- held lock -> owner's number -> request's mark -> number of holds that the request acquired.
-- Requests may share a lock handle; each is a separate owner, unless the option `owner` is set.
local acquired = setmetatable({}, { __mode = "k" })
-- coroutine -> mark of the request that is running in it
local owners = setmetatable({}, { __mode = "k" })

local function address()
  return tonumber(ffi.cast("uintptr_t", get_request())) -- any locale: converts no string
end

local mark_count = 0 -- number of marks that were created

-- Returns a name that distinguishes a request from earlier and later ones at the same address, but
-- not from its subrequests. Raises in a timer.
local function name_of_request()
  return ngx.var.connection .. " " .. ngx.var.connection_requests
end

-- request's name -> its subrequests' marks. A subrequest has no log phase, so its marks end with
-- the main request.
local subrequest_marks = setmetatable({}, { __mode = "v" })

local function read_is_subrequest() return ngx.is_subrequest end

local function is_subrequest()
  local known, is_one = pcall(read_is_subrequest)
  return known and is_one
end

local function record_subrequest(mark)
  local name = name_of_request()
  local family = subrequest_marks[name] or {}
  subrequest_marks[name] = family
  family[#family + 1], mark.family = mark, family
end

-- After an internal redirect, a request has a new ngx.ctx. Its new mark links to the older marks
-- that still have holds or waits. The oldest of these may belong to an earlier request at the same
-- address.
local function new_mark(context)
  local request_address = address()
  local before = marks[request_address]
  while before and before.holds + before.waits == 0 do before = before.previous end
  mark_count = mark_count + 1
  local mark = { number = mark_count, holds = 0, waits = 0, previous = before }
  if before and owner.is_alive(before) then
    mark.owner_number = before.owner_number
  elseif before then
    before.previous = nil
  end
  marks[request_address] = mark
  context[MARK_FIELD] = mark
  if is_subrequest() then record_subrequest(mark) end
  return mark
end

local function current_mark()
  local context = ngx.ctx
  return rawget(context, MARK_FIELD) or new_mark(context)
end

local function live_marks()
  local alive = {}
  for _, context in pairs(contexts) do
    local mark = type(context) == "table" and rawget(context, MARK_FIELD)
    if mark then alive[mark] = true end
  end
  return alive
end

-- Returns the mark of the running request, or nil if there is none.
function owner.mark()
  if not PHASES_WITHOUT_REQUEST[get_phase()] then return current_mark() end
end

-- Returns whether this mark's request still exists.
function owner.is_alive(mark)
  return live_marks()[mark] == true
end

-- Uses a request of its own, because ngx_lua frees a light thread only with its request.
function loop.spawn(fn)
  local begun, message = timer.at(0, function() fn() end)
  if not begun then error(message, 0) end
end

-- Returns whether this worker is exiting.
owner.is_exiting = exiting

-- → a function that returns whether a waiter may continue: its request still exists, and the worker
-- is not exiting or the wait is not one to become leader
function owner.alive_check()
  local alive, ends = live_marks(), exiting()
  return function(waiter) return alive[waiter.owner] and not (ends and waiter.leader_term) end
end

-- Returns the calling coroutine, or nil for the main one. In phases that cannot wait, all requests
-- run in the main coroutine.
local function coroutine_here()
  local thread, is_main = running()
  return not is_main and thread or nil
end

-- Returns the mark of the calling request. ngx_lua reuses coroutines, and each request must be an
-- owner of its own.
local function identify_request()
  local mark, thread = current_mark(), coroutine_here()
  if not thread then
    mark.owner_number = raw.renumber(mark.owner_number)
    return mark
  end
  local before = owners[thread]
  if before == mark then return mark end
  if before then raw.renumber() end
  owners[thread] = mark
  return mark
end

-- Like identify_request, in any phase. Without a request, the worker is the owner, and this returns
-- nil.
local function identify()
  if not PHASES_WITHOUT_REQUEST[get_phase()] then return identify_request() end
  if not coroutine_here() then raw.renumber(WORKER) end
  return nil
end

-- Records that the calling request has acquired a hold on this lock.
local function record_hold(lock, mark)
  local owners_of, number = acquired[lock] or {}, raw.number(lock)
  local counts = owners_of[number] or {}
  acquired[lock], owners_of[number] = owners_of, counts
  if not counts[mark] then mark.holds = mark.holds + 1 end
  counts[mark] = (counts[mark] or 0) + 1
end

-- Records that this owner no longer holds the lock; with `mark`, that the owner has no hold left
-- that this request acquired.
local function forget_owner(lock, number, mark)
  local owners_of = acquired[lock]
  local counts = owners_of and owners_of[number] or {}
  for each in pairs(counts) do
    if not mark or each == mark then
      counts[each], each.holds = nil, each.holds - 1
    end
  end
  if next(counts) or not owners_of then return end
  owners_of[number] = nil
  if not next(owners_of) then acquired[lock] = nil end
end

-- Records that the calling request has released one of its owner's holds.
local function forget_one(lock, mark)
  local number = raw.number(lock)
  local counts = acquired[lock] and acquired[lock][number]
  local count = counts and counts[mark]
  if not count then return end
  if count > 1 then counts[mark] = count - 1 else forget_owner(lock, number, mark) end
end

-- Records that no caller holds the lock any more.
function owner.forget(lock)
  for number in pairs(acquired[lock] or {}) do forget_owner(lock, number) end
end

-- Counts the waiting calls of the request with the waiter's mark. `is_waiting`: whether a call has
-- begun to wait, or has ended its wait
function owner.set_waiting(waiter, is_waiting)
  local mark = waiter.owner
  mark.waits = mark.waits + (is_waiting and 1 or -1)
end

-- Called when a call of this pump begins. → the mark of its request
function owner.begin_call(self)
  local mark = identify_request()
  if self.user ~= mark.number then
    self.reused = self.user ~= nil
    self.user = mark.number
  end
  return mark
end

function loop.report(succeeded, message)
  if not succeeded then ngx.log(ngx.ERR, "holdfast: ", error_text(message)) end
end

local NGINX_TRUSTS = "under ngx_lua, set lua_ssl_trusted_certificate in nginx.conf instead of ca_file or ca_path"

-- Returns why this loop does not support these TLS options, or nil.
function loop.check_tls(tls)
  if tls.ca_file or tls.ca_path then return NGINX_TRUSTS end
end

-- ---- where a call can wait ----

local probe -- a semaphore that is never posted
local can_wait_in = {} -- name of a phase -> whether ngx_lua lets code wait there

-- Finds out whether code can wait here: waits 0 s for the probe, which otherwise fails with a
-- different error.
local function probe_phase()
  if not get_request() then return false end
  probe = probe or assert(semaphore.new())
  local _, message = probe:wait(0)
  return message == "timeout"
end

local TIMER = "use ngx.timer.at(0, function() … end)"
local ADVICE = {
  init = "workers do not exist yet, so move the call to init_worker_by_lua and " .. TIMER,
  set = "use rewrite_by_lua, where it is possible",
  log = "to release locks, call holdfast.finish(); for anything else, " .. TIMER,
  exit_worker = "the worker is exiting, so its locks will expire with their leases",
}

function loop.check()
  local phase = get_phase()
  if can_wait_in[phase] == nil then can_wait_in[phase] = probe_phase() end
  if can_wait_in[phase] then return true end
  local name = phase == "ssl_session_store" and phase or phase .. "_by_lua"
  return nil, ("in %s; %s"):format(name, ADVICE[phase] or TIMER)
end

local spare_signals = {} -- unused signals

local Signal = {}
Signal.__index = Signal

function Signal:wait(seconds)
  return self.semaphore:wait(seconds)
end

function Signal:fire()
  self.semaphore:post()
end

function Signal:free()
  local has_room = #spare_signals < 1000
  if has_room and self.semaphore:count() == 0 then spare_signals[#spare_signals + 1] = self end
end

function loop.signal()
  local last = #spare_signals
  local spare = spare_signals[last]
  spare_signals[last] = nil
  return spare or setmetatable({ semaphore = assert(semaphore.new()) }, Signal)
end

-- ---- the timers ----

-- The timer that runs the next task: { coming, taken, tasks, dials, pid, wake }. `taken` counts all
-- of its tasks, `tasks` those that have not ended; `wake` is nil until the timer begins.
local open_timer
local running_tasks = 0

loop.process = ngx.worker.pid

-- Runs in a timer: spawns its tasks until all of them have ended.
local function serve(_, self)
  self.wake = assert(semaphore.new())
  repeat
    local coming = self.coming
    self.coming = {}
    for _, task in ipairs(coming) do ngx.thread.spawn(task) end
    if self.tasks > 0 then self.wake:wait(FOREVER) end
  until self.tasks == 0
  if open_timer == self then open_timer = nil end
end

-- → a timer that has room for a task | nil, why there is none
local function timer_with_room()
  local has_room = open_timer and open_timer.taken < MAX_TIMER_TASKS
    and open_timer.dials < SOFT_MAX_DIALS
  if has_room and open_timer.pid == ngx.worker.pid() then return open_timer end
  local new_timer = { coming = {}, taken = 0, tasks = 0, dials = 0, pid = ngx.worker.pid() }
  local begun, message = timer.at(0, serve, new_timer)
  if not begun then return nil, message end
  open_timer = new_timer
  return new_timer
end

-- → true | nil, why there is no timer
function loop.begin(self, task)
  local its_timer, message = timer_with_room()
  if not its_timer then return nil, message end
  self.timer = its_timer
  self.never_idles = core.states() > MAX_LUA_STATES
  running_tasks = running_tasks + 1
  its_timer.taken, its_timer.tasks = its_timer.taken + 1, its_timer.tasks + 1
  its_timer.coming[#its_timer.coming + 1] = task
  if its_timer.wake then its_timer.wake:post() end
  return true
end

-- Called when the task has ended, or if its timer has not begun in time. In that case, the next
-- task gets a new timer.
local function leave_timer(self)
  local old_timer = self.timer
  if not self.task_wake and open_timer == old_timer then open_timer = nil end
  self.timer, self.stays = nil, nil
  running_tasks = running_tasks - 1
  old_timer.tasks = old_timer.tasks - 1
  if old_timer.tasks == 0 and old_timer.wake then old_timer.wake:post() end
end

local TOO_MANY = "this worker is already running %d timers, and nginx will not start another; "
  .. "raise lua_max_running_timers or worker_connections"

-- nginx limits the number of running timers, and each one occupies a connection.
function loop.late_message()
  return TOO_MANY:format(ngx.timer.running_count())
end

-- ---- a task ----

-- Returns whether the task ends as soon as it has nothing to do. If each request creates a client,
-- idle tasks would otherwise accumulate that are never needed again. The first tasks may idle: if
-- later tasks replaced them, the idle tasks would spread over more and more timers.
local function ends_when_idle(self)
  return self.never_idles or running_tasks > MAX_IDLE_TASKS and not self.reused and not self.stays
end

local RELEASES = { release = true, complete = true, force_release = true }

local function forget_released(lock, mark, first)
  if raw.holds(lock) == 0 then
    forget_owner(lock, raw.number(lock))
  elseif first and mark then
    forget_one(lock, mark)
  end
end

-- Called when a call has ended. `self`: the pump, or nil for the blocking driver; `mark`: nil if
-- there is no request; `first`: the call's first result.
function owner.record_result(self, lock, kind, mark, first)
  if kind == "acquire" then
    if first and mark then record_hold(lock, mark) end
  elseif RELEASES[kind] then
    forget_released(lock, mark, first)
  end
  if not self or not self.task_wake then return end
  self.idle_until = nil -- the task may not have noticed this call
  if ends_when_idle(self) then cosockets.wake(self) else self.stays = true end
end

local function settle_all(locks, kind, mark, first, ...)
  for _, lock in ipairs(locks) do owner.record_result(nil, lock, kind, mark, first) end
  shared_metrics.add_soon(raw.data(locks[1]).client)
  return first, ...
end

function owner.around_call(kind, run, takes_list)
  return function(lock_or_list, seconds, record)
    local mark = identify()
    local locks = takes_list and lock_or_list or { lock_or_list }
    return settle_all(locks, kind, mark, run(lock_or_list, seconds, record))
  end
end

function owner.around_query(ask)
  return function(lock)
    identify()
    return ask(lock)
  end
end

local function has_live_mark(counts, alive)
  for mark in pairs(counts) do
    if alive[mark] then return true end
  end
  return false
end

-- Calls each(lock, number) for the client's holds whose requests still exist. Other holds end with
-- their leases.
local function for_each_live_hold(client, each)
  local alive = live_marks()
  for lock, owners_of in pairs(acquired) do
    local is_ours = raw.data(lock).client == client
    for number, counts in pairs(is_ours and owners_of or {}) do
      if has_live_mark(counts, alive) then
        each(lock, number)
      elseif raw.holds(lock, number) == 0 then
        forget_owner(lock, number)
      end
    end
  end
end

local function has_live_holds(client)
  local found = false
  for_each_live_hold(client, function() found = true end)
  return found
end

local function is_over_at_exit(self, client, operations, leaving)
  self.exits_at = self.exits_at or now() + EXIT_TIME
  if operations > 0 or has_live_holds(client) then
    self.exits_at = nil
    return false
  end
  return leaving == 0 or now() >= self.exits_at
end

function loop.is_over(self, client, operations, held, leaving)
  if exiting() then return is_over_at_exit(self, client, operations, leaving) end
  if operations + held + leaving > 0 then
    self.idle_until = nil
    return false
  end
  if self.closing or ends_when_idle(self) then return true end
  self.idle_until = self.idle_until or now() + MAX_IDLE_TIME
  return now() >= self.idle_until
end

-- Approves the renewal of holds whose requests still exist.
local function approve_renewals(self)
  self.approvals_given = self.approvals_requested
  for_each_live_hold(self.client, raw.approve)
  cosockets.advance(self)
end

loop.io = setmetatable({}, { __index = cosockets })

function loop.io.tend(self)
  cosockets.tend(self)
  if self.approvals_requested ~= self.approvals_given then approve_renewals(self) end
end

-- Returns whether a new task, in a new timer, should take over from this one.
function loop.io.must_be_replaced(self)
  local dials = self.timer.dials
  return dials >= HARD_MAX_DIALS or dials >= SOFT_MAX_DIALS and cosockets.can_restart(self)
end

function loop.io.stop(self)
  leave_timer(self)
  cosockets.stop(self)
end

function loop.io.close() end -- the sockets end with the task

-- Called in a phase that cannot wait. The task cleans up the rest.
function loop.close_at_once(self, client)
  if pump.begin_close(self, client) then return end
  if pump.start_detached(self, client) then cosockets.wake(self) end
end

-- ---- the end of a request ----

local function abandon_holds(mark, touched)
  for lock, owners_of in pairs(acquired) do
    for number, counts in pairs(owners_of) do
      local count = counts[mark]
      if count then
        forget_owner(lock, number, mark)
        raw.abandon(lock, number, count)
        local data = raw.data(lock)
        if data.loop then touched[data.client] = data.loop end
      end
    end
  end
  mark.holds = 0
end

local FINISHED = "holdfast.finish() has ended the wait"

local function abandon(mark)
  local touched = {}
  if mark.holds > 0 then abandon_holds(mark, touched) end
  if mark.waits > 0 then
    pump.abandon_all(function(waiter) return waiter.owner == mark end, touched, FINISHED)
  end
  mark.waits = 0
  for client, its_loop in pairs(touched) do
    pump.start_detached(pump.of(client, its_loop), client)
  end
end

local function is_of_this_request(mark)
  local named, name = pcall(name_of_request)
  return named and mark.request == name
end

-- Makes finish call ending(value) once when this request ends.
function owner.at_end(ending, value)
  local mark = current_mark()
  mark.ending, mark.ending_value, mark.request = ending, value, name_of_request()
  mark.holds = mark.holds + 1 -- so that finish checks this request
end

local function mark_with(ending)
  local mark = get_request() and marks[address()]
  while mark and mark.ending ~= ending do mark = mark.previous end
  return mark and is_of_this_request(mark) and mark or nil
end

-- Returns the value that was passed to at_end with this ending in this request.
function owner.end_value(ending)
  local mark = mark_with(ending)
  return mark and mark.ending_value
end

-- Returns whether at_end was called with this ending in this request.
function owner.has_ending(ending)
  return mark_with(ending) ~= nil
end

-- Does not call an ending that belongs to another request; its holds end with their leases.
local function end_mark(mark)
  local ending = mark.ending
  if ending and not is_of_this_request(mark) then return end
  mark.ending = nil
  if ending then ending(mark.ending_value) end
  abandon(mark)
end

-- In the log phase of a main request, all its subrequests have ended.
local function end_subrequests()
  if not next(subrequest_marks) or get_phase() ~= "log" or is_subrequest() then return end
  for _, mark in ipairs(subrequest_marks[name_of_request()] or {}) do end_mark(mark) end
end

-- Releases all locks that this request holds, and ends its waits; does no I/O itself.
function owner.finish()
  end_subrequests()
  local mark = get_request() and marks[address()]
  while mark do
    local before = mark.previous
    end_mark(mark)
    mark = before
  end
end

return loop
