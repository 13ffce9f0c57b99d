-- The connections under ngx_lua: cosockets, which only nginx can wait for. Each link in use has two
-- light threads of the pump's task, a reader and a writer, and a socket while it is connected.
-- After every change, advance() asks the core what to do next.

local core = require "holdfast.core"
local credentials = require "holdfast.credentials"
local ffi = require "ffi"
local pump = require "holdfast.loop.pump"
local semaphore = require "ngx.semaphore"
local error_text = require("holdfast.compat").error_text

local engine, now = core.engine, core.now
local wake_done = pump.wake_done

local READ_TIMEOUT_MS = 86400000 -- the core detects earlier that a server does not reply
local MAX_READ_SIZE = 65536 -- bytes
local HUNG_UP = "the server closed the connection"
local LINKS_PER_SERVER = 3
local FOREVER = 86400 -- seconds
local CHECK_EVERY = 1 -- seconds between checks of whether the worker is exiting
local MAX_DELAY = 0.02 -- seconds; a deadline missed by more means that the worker was busy
local CATCH_UP_PAUSE = 0.01 -- seconds for the threads to read and write the backlog
local FIRST_PAUSE, MAX_PAUSE = 0.01, 0.25 -- seconds between a failed dial and the next one

local cosockets = {}

-- LuaJIT interns a string by its size and a hash of 16 of its bytes. Commands often have the same
-- size and differ only in other bytes, and so do replies. Each new string would be compared with
-- all uncollected ones, so commands and replies are cut into pieces at varying positions.
local step = 0

local function vary(minimum, range)
  step = (5 * step + 3) % 64
  return minimum + step % range
end

local function new_link(number)
  local reader_wake, writer_wake = assert(semaphore.new()), assert(semaphore.new())
  return { number = number, reader_wake = reader_wake, writer_wake = writer_wake }
end

local function wake_task(self)
  if self.sleeps_until == 0 then return end
  self.task_wake:post()
  self.sleeps_until = 0
end

cosockets.wake = wake_task

local function kick_writer(link)
  if link.kicked then return end
  link.writer_wake:post()
  link.kicked = true
end

local function set_action(self, number, action)
  local link = self.links[number]
  if not link then
    if action then
      self.wants_link = true
      wake_task(self)
    end
    return
  end
  link.action = action
  if action == "write" then
    kick_writer(link)
  elseif action == "open" then
    if link.opening then return end
    link.reader_wake:post()
    link.opening = true
  elseif action == "close" then
    wake_task(self)
  end
end

local function is_late(self)
  return self.task_wake ~= nil and now() > self.deadline + MAX_DELAY
end

local function advance_now(self)
  local actions = self.actions
  local links, deadline, approvals = engine.advance(self.client, self.done, actions)
  self.deadline, self.approvals_requested = deadline, approvals
  wake_done(self)
  if not self.task_wake then return end -- the task's timer has not fired yet
  for number = 1, links do set_action(self, number, actions[number]) end
  local must_wake = approvals ~= self.approvals_given or deadline < self.sleeps_until
  if must_wake then wake_task(self) end
end

-- Must be called after anything that may have changed the core's state. If a deadline is overdue,
-- the task runs first, so that no operation times out whose reply has already arrived.
local function advance(self)
  if is_late(self) then wake_task(self) else advance_now(self) end
end

cosockets.advance = advance

-- Called when an operation has begun. With one server, its request uses the first link. That link's
-- writer sends this request together with all others that have begun by then, and calls advance().
function cosockets.send(self)
  local call_link = self.task_wake and #self.actions == LINKS_PER_SERVER and self.links[1]
  if not call_link or not call_link.socket or call_link.broken or call_link.action == "close" then
    return advance(self)
  end
  kick_writer(call_link)
end

cosockets.defer_output = cosockets.send

-- ---- sockets ----

local NO_CONNECTION = "nginx has no free connection; raise worker_connections"
-- Without a free connection, connect returns the message for errno 0, or for the errno of an
-- earlier call.
local MEANINGLESS_ERRORS = { error = true, ["operation now in progress"] = true }

-- Uses a separate pool, so that connect does not return a connection that other code has used.
local function dial(client, link, socket)
  local host, port = engine.server(client, link.number)
  local options = { pool = "holdfast " .. tostring(socket) } -- any locale: a table's address
  if port == 0 then host, port = "unix:" .. host, nil end
  if host == "localhost" then host = "127.0.0.1" end
  if port and host:find(":", 1, true) then host = "[" .. host .. "]" end
  ffi.errno(0) -- without a name to resolve, connect may fail without setting errno
  local connected, message
  if port then
    connected, message = socket:connect(host, port, options)
  else
    connected, message = socket:connect(host, options)
  end
  return connected, MEANINGLESS_ERRORS[message] and NO_CONNECTION or message
end

-- Doubles the pause with each failure in a row, so that requests cannot make a worker dial
-- endlessly.
local function record_dial(self, number, connected)
  local dials = self.dials
  local pause = dials[number] and dials[number].pause or FIRST_PAUSE / 2
  dials[number] = not connected
    and { pause = math.min(2 * pause, MAX_PAUSE), failed_at = now() } or nil
end

local function pause_before_dial(self, number)
  local failed = self.dials[number]
  local left = failed and failed.failed_at + failed.pause - now() or 0
  if left > 0 then ngx.sleep(left) end
end

local function disconnected(self, link, reason)
  link.socket = nil
  link.broken = nil
  link.action = nil
  engine.closed(self.client, link.number, reason)
  advance(self)
end

local CLIENT_CERTIFICATE = "TLS: this version of lua-resty-core does not support client certificates"

local function read_file(path)
  local file, message = io.open(path, "rb")
  if not file then return nil, message end
  local contents = file:read("*a")
  file:close()
  return contents
end

-- Reads the certificate and the key. → both, parsed | nil, why they cannot be used
local function read_certificate(tls)
  local ssl = require "ngx.ssl"
  local cert, key, message
  cert, message = read_file(tls.cert)
  if cert then cert, message = ssl.parse_pem_cert(cert) end
  if not cert then return nil, ("TLS: cannot use cert %s: %s"):format(tls.cert, message) end
  key, message = read_file(tls.key)
  if key then key, message = ssl.parse_pem_priv_key(key) end
  if not key then return nil, ("TLS: cannot use key %s: %s"):format(tls.key, message) end
  return { cert = cert, key = key }
end

-- paths of a certificate and its key -> the contents that a server last accepted
local accepted = {}

local function certificate_cache_key(tls)
  return tls.cert .. "\0" .. tls.key
end

-- Sets the socket's client certificate. While the files are being replaced, they may be incomplete
-- or mismatched; then the last accepted ones are used. → the pair in use | nil, why there is none
local function set_certificate(socket, tls)
  if not socket.setclientcert then return nil, CLIENT_CERTIFICATE end
  local pair, message = read_certificate(tls)
  local set
  if pair then set, message = socket:setclientcert(pair.cert, pair.key) end
  if set then return pair end
  pair = accepted[certificate_cache_key(tls)]
  if not pair then return nil, message end
  set, message = socket:setclientcert(pair.cert, pair.key)
  return set and pair, message
end

-- Starts TLS over a connected socket if the client uses it. → true | nil, why not
local function start_tls(client, link, socket)
  local tls = engine.tls(client, link.number)
  if not tls then return true end
  engine.handshaking(client, link.number)
  local presented, handshake_ok, message
  if tls.cert then
    presented, message = set_certificate(socket, tls)
    if not presented then return nil, message end
  end
  handshake_ok, message = socket:sslhandshake(false, tls.server_name
    or engine.server(client, link.number), tls.verify)
  if handshake_ok and presented then accepted[certificate_cache_key(tls)] = presented end
  if handshake_ok then return true end
  if message == "timeout" then
    return nil, "the TLS handshake timed out; does the server speak TLS?"
  end
  -- nginx's message for any failure that is not about a certificate
  local hint = message == "handshake failed" and "; does the server speak TLS?" or ""
  return nil, "TLS: " .. message .. hint
end

-- Receives until the connection ends. → the reason | nil if the server closed it
local function receive(self, link, socket)
  local full_reads = 0 -- consecutive reads that returned as much as their limit
  while true do
    if link.action == "close" then return "closed" end
    local limit = full_reads == 0 and vary(12, 16) or full_reads == 1 and vary(48, 64)
      or MAX_READ_SIZE
    local bytes, message = socket:receiveany(limit)
    if link.abandoned then return nil end
    full_reads = bytes and #bytes == limit and full_reads + 1 or 0
    if bytes then
      if engine.feed(self.client, link.number, bytes) then advance(self) end
    elseif message == "closed" or message == "connection reset by peer" then
      return nil
    elseif message ~= "timeout" then
      return message
    end
  end
end

local function connect(self, link)
  local socket = ngx.socket.tcp()
  local connect_timeout, command_timeout = engine.timeouts(self.client)
  local deadline = now() + connect_timeout
  socket:settimeouts(connect_timeout * 1000, command_timeout * 1000, READ_TIMEOUT_MS)
  engine.opening(self.client, link.number)
  self.timer.dials = self.timer.dials + 1
  link.dialing = true
  local connected, message = dial(self.client, link, socket)
  if connected then
    local left_ms = math.max((deadline - now()) * 1000, 1)
    socket:settimeouts(left_ms, command_timeout * 1000, READ_TIMEOUT_MS)
    connected, message = start_tls(self.client, link, socket)
  end
  link.dialing = false
  if link.abandoned then return socket:close() end
  record_dial(self, link.number, connected)
  if not connected then
    socket:close()
    return disconnected(self, link, message)
  end
  if socket.setoption then socket:setoption("keepalive", true) end -- uses the system's intervals
  link.socket = socket
  engine.opened(self.client, link.number)
  advance(self)
  local reason = receive(self, link, socket)
  if link.abandoned then return socket:close() end
  if link.writing then -- the task ends both threads
    link.broken = reason or HUNG_UP
    wake_task(self)
    link.reader_wake:wait(FOREVER)
  end
  socket:close()
  disconnected(self, link, reason)
end

local function needs_opening(self, link)
  local action = engine.wants(self.client, link.number)
  return action == "open" or action == "login"
end

local function log_in(self, link)
  local function is_awaited() return not link.abandoned end
  credentials.log_in(self.client, link.number, is_awaited,
    engine.ask_login(self.client, link.number))
  if not link.abandoned then advance(self) end
end

local function run_reader(self, link)
  while not link.abandoned do
    link.opening = false
    if needs_opening(self, link) then
      pause_before_dial(self, link.number)
      if link.abandoned then return end
    end
    if engine.wants(self.client, link.number) == "login" then log_in(self, link) end
    if link.abandoned then return end
    if engine.wants(self.client, link.number) == "open" then connect(self, link) end
    if not needs_opening(self, link) then link.reader_wake:wait(FOREVER) end
  end
end

local function send(self, link, socket)
  local pieces = engine.output(self.client, link.number, vary(64, 64) / 256)
  while pieces do
    link.writing = true
    local sent, message = socket:send(pieces)
    link.writing = false
    if link.socket ~= socket then return end
    if not sent then
      link.broken = message
      return wake_task(self)
    end
    pieces = engine.output(self.client, link.number, vary(64, 64) / 256)
  end
  advance(self)
end

local function run_writer(self, link)
  while not link.abandoned do
    link.writer_wake:wait(FOREVER)
    link.kicked = false
    local socket = link.socket
    if socket and not link.broken then send(self, link, socket) end
  end
end

-- After an error the task ends both threads and spawns new ones, which pause as after a failed
-- dial.
local function run_thread(run, self, link)
  local succeeded, message = pcall(run, self, link)
  if succeeded or link.abandoned then return end
  self.loop.report(nil, message)
  record_dial(self, link.number, false)
  link.broken = error_text(message)
  wake_task(self)
end

local function spawn_link(self, link)
  link.opening, link.dialing, link.kicked, link.writing = false, false, false, false
  link.reader, link.writer = nil, nil -- a spawn may fail
  link.reader = ngx.thread.spawn(run_thread, run_reader, self, link)
  link.writer = ngx.thread.spawn(run_thread, run_writer, self, link)
end

-- A socket in use can be closed only by the light thread that is using it, so the threads are ended
-- first. Only the task that spawned them can end them.
local function end_threads(link, socket)
  if link.reader then ngx.thread.kill(link.reader) end
  if link.writer then ngx.thread.kill(link.writer) end
  if socket then socket:close() end
end

local function kill_link(self, link, reason)
  end_threads(link, link.socket)
  disconnected(self, link, reason)
end

-- Runs in the task, which owns the light threads. Starts a link only at its first action, because
-- most links are never used.
local function act_on_link(self, number)
  local link = self.links[number]
  if link and (link.broken or link.socket and link.action == "close") then
    kill_link(self, link, link.broken or "closed")
    spawn_link(self, link)
  elseif not link and self.actions[number] then
    link = new_link(number)
    self.links[number] = link
    spawn_link(self, link)
    set_action(self, number, self.actions[number])
  end
end

-- ---- the task ----

-- → the task's links
function cosockets.begin(self)
  self.task_wake, self.runner = assert(semaphore.new()), coroutine.running()
  self.dials = self.dials or {} -- a link's number -> its last dial, if it failed
  return self.links
end

-- Returns whether a new task can start without breaking an operation: no operation is in progress,
-- or no link is connected or connecting.
function cosockets.can_restart(self)
  for _, link in pairs(self.links) do
    if link.socket or link.dialing then return engine.load(self.client) == 0 end
  end
  return true
end

function cosockets.tend(self)
  if is_late(self) then ngx.sleep(CATCH_UP_PAUSE) end
  if coroutine.running() ~= self.runner then return end -- another task has taken over
  advance_now(self)
  repeat
    self.wants_link = false
    for number = 1, #self.actions do act_on_link(self, number) end
  until not self.wants_link
end

function cosockets.sleep(self)
  local started_at = now()
  local wake_at = math.min(self.deadline, started_at + CHECK_EVERY)
  if wake_at <= started_at then -- any locale: compares numbers
    wake_at = started_at + 0.001
  end
  local task_wake = self.task_wake
  self.sleeps_until = wake_at
  task_wake:wait(math.ceil((wake_at - started_at) * 1000) / 1000)
  if self.task_wake == task_wake then self.sleeps_until = 0 end
end

local ENDED = "not needed any more"

local function kill_links(self, links)
  for _, link in pairs(links) do kill_link(self, link, ENDED) end
end

-- Another task continues with new links; the stopped task ends its own links when it next runs.
local function abandon_links(self, links)
  for _, link in pairs(links) do
    link.abandoned, link.abandoned_socket = true, link.socket
    disconnected(self, link, ENDED)
  end
end

-- Called by the task, or by a caller if the task has not run in time.
function cosockets.stop(self)
  local links, task_wake = self.links, self.task_wake
  local is_task = coroutine.running() == self.runner
  -- From now on, advance() opens no links.
  self.links, self.task_wake, self.runner, self.sleeps_until = {}, nil, nil, 0
  if not is_task and task_wake then task_wake:post() end
  local stopped, message = pcall(is_task and kill_links or abandon_links, self, links)
  if not stopped then error(message, 0) end
end

-- Ends the threads of abandoned links, in the task that spawned them, which no longer serves the
-- client.
function cosockets.end_abandoned(links)
  for _, link in pairs(links) do
    if link.abandoned then end_threads(link, link.abandoned_socket) end
  end
end

return cosockets
