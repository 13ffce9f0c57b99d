-- The driver under ngx_lua: moves the bytes of external clients over cosockets and wakes those who wait. Every decision
-- is the core's.
--
-- A client has one pump in each worker: a zero-delay timer that lives while something is under way, and IDLE seconds
-- longer. It owns the two sockets, each with a reader and a writer light thread. A request begins an operation and
-- sleeps on a semaphore until the pump finds it done. Whatever changes the core is followed by a turn, which tells what
-- to do next.
--
-- A request is known by its mark: a table in its ngx.ctx, which ngx_lua lets go of when the request ends, however it
-- ends. A hold is renewed only while the mark of who acquired it is there.

local core = require "holdfast.core"

local ffi = require "ffi"
local base = require "resty.core.base"
local semaphore = require "ngx.semaphore"

local engine, raw, operation = core.engine, core.lock, core.operation
local now, get_phase, exiting, running = core.now, ngx.get_phase, ngx.worker.exiting, coroutine.running
local contexts = debug.getregistry().ngx_lua_ctx_tables
local get_request = base.get_request

if not contexts then error("holdfast: this version of lua-resty-core keeps ngx.ctx in an unknown place", 0) end

local IDLE = 60 -- seconds that a pump outlives its last work
local LEAVE = 1 -- seconds that an exiting worker spends on undoing
local STATES = 2 -- Lua states of a process that may have idle pumps; with lua_code_cache off each request is one more
local LOOK = 1 -- seconds between two looks at the worker and at those who wait
local SILENCE = 86400000 -- ms; the core knows earlier when a server is silent
local MOST_BYTES = 65536
local SLOT = "holdfast" -- of the mark in ngx.ctx
local HUNG_UP = "the server closed the connection"
local ROLES = 3 -- links that the core has for each server

-- ---- who asks ----

local marks = setmetatable({}, { __mode = "v" }) -- request's address -> its mark
local kept = setmetatable({}, { __mode = "k" }) -- lock with holds -> mark of the request that acquired it
local owners = setmetatable({}, { __mode = "k" }) -- coroutine -> mark of the request that runs in it

local function address()
  return tonumber(ffi.cast("uintptr_t", get_request()))
end

-- After an internal redirect a request has a new ngx.ctx: its new mark leads to the old one.
local function new_mark(context)
  local at = address()
  local before = marks[at]
  local mark = { holds = 0, waits = 0 }
  if before and before.holds + before.waits > 0 then
    before.previous = nil
    mark.previous = before
  end
  marks[at] = mark
  context[SLOT] = mark
  return mark
end

local function mark_here()
  local context = ngx.ctx
  return rawget(context, SLOT) or new_mark(context)
end

local function living()
  local alive = {}
  for _, context in pairs(contexts) do
    local mark = type(context) == "table" and rawget(context, SLOT)
    if mark then alive[mark] = true end
  end
  return alive
end

-- ngx_lua runs one request after the other in the same coroutine: each is an owner of its own. Where nothing can wait
-- there is no coroutine.
local function identify()
  local mark, thread = mark_here(), running()
  local before = owners[thread]
  if before == mark or not thread then return mark end
  if before then raw.renumber() end
  owners[thread] = mark
  return mark
end

local function keep(lock, mark)
  local before = kept[lock]
  if before == mark then return end
  if before then before.holds = before.holds - 1 end
  kept[lock] = mark
  mark.holds = mark.holds + 1
end

local function forget(lock)
  local mark = kept[lock]
  if not mark then return end
  kept[lock] = nil
  mark.holds = mark.holds - 1
end

-- ---- semaphores ----

local spare = {} -- unused ones

local function borrow()
  local last = #spare
  local one = spare[last]
  if not one then return assert(semaphore.new()) end
  spare[last] = nil
  return one
end

local function give_back(one)
  if one:count() == 0 and #spare < 1000 then spare[#spare + 1] = one end
end

-- ---- the pump ----

local pumps = setmetatable({}, { __mode = "k" }) -- client -> pump; only a running pump knows its client

local function new_link(number)
  return { number = number, wake = assert(semaphore.new()), output = assert(semaphore.new()) }
end

local function pump_of(client)
  local pump = pumps[client]
  local pid = ngx.worker.pid()
  if pump and pump.pid == pid then return pump end
  pump = {
    pid = pid, links = {}, chores = {}, waiting = {}, done = {}, asked = 0, answered = 0, deadline = math.huge,
    sleeps_until = 0,
  }
  pumps[client] = pump
  return pump
end

local function wake_clock(pump)
  if pump.sleeps_until == 0 then return end
  pump.sleeps_until = 0
  pump.clock:post()
end

local function wake_done(pump)
  local done, waiting = pump.done, pump.waiting
  local i, number = 1, done[1]
  while number do
    local waiter = waiting[number]
    if waiter and waiter.ready then
      waiter.ready:post()
    elseif waiter then
      waiting[number] = nil
      operation.finish(waiter.op)
    end
    i = i + 1
    number = done[i]
  end
end

local function put(pump, number, chore)
  local link = pump.links[number]
  if not link then
    if chore then
      pump.wants_link = true
      wake_clock(pump)
    end
    return
  end
  link.chore = chore
  if chore == "write" then
    if link.kicked then return end
    link.kicked = true
    link.output:post()
  elseif chore == "open" then
    if link.opening then return end
    link.opening = true
    link.wake:post()
  elseif chore == "close" then
    wake_clock(pump)
  end
end

-- After anything that may have changed the core.
local function turn(pump)
  local chores = pump.chores
  local links, deadline, asked = engine.turn(pump.client, pump.done, chores)
  pump.deadline, pump.asked = deadline, asked
  if pump.done[1] then wake_done(pump) end
  if not pump.clock then return end -- its timer has not begun
  for number = 1, links do put(pump, number, chores[number]) end
  if asked ~= pump.answered or deadline < pump.sleeps_until then wake_clock(pump) end
end

-- ---- sockets ----

-- A pool of its own: connect must not find a connection that other code has left in some state.
local function dial(client, link, socket)
  local host, port = engine.server(client, link.number)
  local options = { pool = "holdfast " .. tostring(socket) }
  if port == 0 then return socket:connect("unix:" .. host, options) end
  if host == "localhost" then host = "127.0.0.1" end
  if host:find(":", 1, true) then host = "[" .. host .. "]" end
  return socket:connect(host, port, options)
end

local function disconnected(pump, link, reason)
  link.socket = nil
  link.broken = nil
  link.chore = nil
  engine.closed(pump.client, link.number, reason)
  turn(pump)
end

local CLIENT_CERTIFICATE = "TLS: this version of lua-resty-core knows no client certificates"

local function content(path)
  local file, message = io.open(path, "rb")
  if not file then return nil, message end
  local text = file:read("*a")
  file:close()
  return text
end

-- → true | nil, why not
local function show_certificate(socket, tls)
  if not socket.setclientcert then return nil, CLIENT_CERTIFICATE end
  local ssl = require "ngx.ssl"
  local cert, key, message
  cert, message = content(tls.cert)
  if cert then cert, message = ssl.parse_pem_cert(cert) end
  if not cert then return nil, ("TLS: cannot use cert %s: %s"):format(tls.cert, message) end
  key, message = content(tls.key)
  if key then key, message = ssl.parse_pem_priv_key(key) end
  if not key then return nil, ("TLS: cannot use key %s: %s"):format(tls.key, message) end
  return socket:setclientcert(cert, key)
end

-- TLS over a connected socket, where the client wants it. → true | nil, why not
local function agree(client, link, socket)
  local tls = engine.tls(client, link.number)
  if not tls then return true end
  engine.agreeing(client, link.number)
  if tls.cert then
    local shown, message = show_certificate(socket, tls)
    if not shown then return nil, message end
  end
  local agreed, message = socket:sslhandshake(false, tls.server_name or engine.server(client, link.number), tls.verify)
  if agreed then return true end
  if message == "timeout" then return nil, "no TLS handshake in time; does the server speak TLS?" end
  return nil, "TLS: " .. message
end

-- Until the connection ends: why it did, nil when the server closed it.
local function receive(pump, link, socket)
  while true do
    if link.chore == "close" then return "closed" end
    local bytes, message = socket:receiveany(MOST_BYTES)
    if bytes then
      engine.feed(pump.client, link.number, bytes)
      turn(pump)
    elseif message == "closed" or message == "connection reset by peer" then
      return nil
    elseif message ~= "timeout" then
      return message
    end
  end
end

local function connect(pump, link)
  local socket = ngx.socket.tcp()
  local connect_timeout, command_timeout = engine.timeouts(pump.client)
  local till = now() + connect_timeout
  socket:settimeouts(connect_timeout * 1000, command_timeout * 1000, SILENCE)
  engine.opening(pump.client, link.number)
  local connected, message = dial(pump.client, link, socket)
  if connected then
    socket:settimeouts(math.max((till - now()) * 1000, 1), command_timeout * 1000, SILENCE)
    connected, message = agree(pump.client, link, socket)
  end
  if not connected then
    socket:close()
    return disconnected(pump, link, message)
  end
  link.socket = socket
  engine.opened(pump.client, link.number)
  turn(pump)
  local reason = receive(pump, link, socket)
  if link.writing then -- the clock ends both
    link.broken = reason or HUNG_UP
    wake_clock(pump)
    link.wake:wait(SILENCE / 1000)
  end
  socket:close()
  disconnected(pump, link, reason)
end

local function read(pump, link)
  while true do
    link.opening = false
    if engine.wants(pump.client, link.number) == "open" then connect(pump, link) end
    if engine.wants(pump.client, link.number) ~= "open" then link.wake:wait(SILENCE / 1000) end
  end
end

local function send(pump, link, socket)
  local bytes = engine.output(pump.client, link.number)
  while bytes do
    link.writing = true
    local sent, message = socket:send(bytes)
    link.writing = false
    if link.socket ~= socket then return end
    if not sent then
      link.broken = message
      return wake_clock(pump)
    end
    bytes = engine.output(pump.client, link.number)
  end
  turn(pump)
end

local function write(pump, link)
  while true do
    link.output:wait(SILENCE / 1000)
    link.kicked = false
    local socket = link.socket
    if socket and not link.broken then send(pump, link, socket) end
  end
end

local function spawn_link(pump, link)
  link.opening, link.kicked, link.writing = false, false, false
  link.reader = ngx.thread.spawn(read, pump, link)
  link.writer = ngx.thread.spawn(write, pump, link)
end

-- Nobody but the light threads themselves can take a socket from them: they end with it.
local function kill_link(pump, link, reason)
  ngx.thread.kill(link.reader)
  ngx.thread.kill(link.writer)
  if link.socket then link.socket:close() end
  disconnected(pump, link, reason)
end

-- In the pump's timer, to which the light threads belong. A link begins with its first chore: few of many are used.
local function look_at_link(pump, number)
  local link = pump.links[number]
  if link and link.socket and (link.broken or link.chore == "close") then
    kill_link(pump, link, link.broken or "closed")
    spawn_link(pump, link)
  elseif not link and pump.chores[number] then
    link = new_link(number)
    pump.links[number] = link
    spawn_link(pump, link)
    put(pump, number, pump.chores[number])
  end
end

local function look_at_links(pump)
  repeat
    pump.wants_link = false
    for number = 1, #pump.chores do look_at_link(pump, number) end
  until not pump.wants_link
end

-- ---- the clock of a pump ----

-- Holds that ask for their owner's word before they are renewed get it while the owner's request lives.
local function answer(pump, alive)
  pump.answered = pump.asked
  for lock, mark in pairs(kept) do
    if alive[mark] and raw.data(lock).client == pump.client then raw.allow(lock) end
  end
  turn(pump)
end

-- An operation that is done may have got its lock, and nobody comes for it.
local function give_up(pump, number, waiter)
  pump.waiting[number] = nil
  waiter.mark.waits = waiter.mark.waits - 1
  waiter.given_up = true
  local lock = operation.finish(waiter.op)
  if type(lock) == "userdata" then raw.abandon(lock) end
end

-- Who waited in a request that is over gives its place to the next.
local function give_up_dead(pump, alive)
  for number, waiter in pairs(pump.waiting) do
    if waiter.ready and not alive[waiter.mark] then give_up(pump, number, waiter) end
  end
end

local function look(pump)
  if next(pump.waiting) then give_up_dead(pump, living()) end
  turn(pump)
end

local function serves_the_living(pump)
  local alive = living()
  for lock, mark in pairs(kept) do
    if alive[mark] and raw.data(lock).client == pump.client then return true end
  end
  return false
end

local function is_over_at_exit(pump, operations, leaving)
  pump.exits_at = pump.exits_at or now() + LEAVE
  if operations > 0 or serves_the_living(pump) then
    pump.exits_at = nil
    return false
  end
  return leaving == 0 or now() >= pump.exits_at
end

local function is_over(pump)
  local operations, held, leaving = engine.load(pump.client)
  if exiting() then return is_over_at_exit(pump, operations, leaving) end
  if operations + held + leaving > 0 then
    pump.idle_until = nil
    return false
  end
  if pump.closing or pump.brief then return true end
  pump.idle_until = pump.idle_until or now() + IDLE
  return now() >= pump.idle_until
end

local function sleep(pump)
  local at = now()
  local till = math.min(pump.deadline, at + LOOK)
  if till <= at then till = at + 0.001 end
  pump.sleeps_until = till
  pump.clock:wait(math.ceil((till - at) * 1000) / 1000)
  pump.sleeps_until = 0
end

local function tend(pump)
  local looked_at = now()
  repeat
    turn(pump)
    if pump.asked ~= pump.answered then answer(pump, living()) end
    look_at_links(pump)
    if now() >= looked_at + LOOK then
      looked_at = now()
      look(pump)
    end
    if is_over(pump) then return end
    sleep(pump)
  until false
end

-- Does not wait: nobody begins anything in between.
local function stop(pump)
  local links = pump.links
  pump.clock = nil -- no new ones meanwhile
  for _, link in pairs(links) do kill_link(pump, link, "not needed any more") end
  pump.running, pump.links, pump.client, pump.timer = false, {}, nil, nil
end

local function run(_, pump, timer)
  if pump.timer ~= timer then return end
  pump.clock = assert(semaphore.new())
  local ran, message = pcall(tend, pump)
  if not ran then ngx.log(ngx.ERR, "holdfast: ", message) end
  stop(pump)
end

-- → true | nil, why no timer can be had
local function start(pump, client)
  if pump.running then return true end
  pump.running, pump.client, pump.idle_until, pump.timer = true, client, nil, {}
  pump.brief = core.states() > STATES
  pump.starts_by = now() + LOOK
  local started, message = ngx.timer.at(0, run, pump, pump.timer)
  if not started then stop(pump) end
  return started, message
end

-- A timer that never came, or ended with an error, leaves those who wait to begin another.
local function revive(pump, client)
  if pump.running and not pump.clock and now() > pump.starts_by then stop(pump) end
  if start(pump, client) then turn(pump) end
end

-- ---- operations ----

local PHASES_THAT_WAIT = {
  rewrite = true, server_rewrite = true, access = true, content = true, timer = true, preread = true,
  ssl_cert = true, ssl_session_fetch = true, ssl_client_hello = true,
}
local PHASES_WITHOUT_REQUEST = { init = true, init_worker = true, exit_worker = true }

local TIMER = "let a timer do it: ngx.timer.at(0, function() … end)"
local ADVICE = {
  init = "workers do not exist yet; in init_worker_by_lua " .. TIMER,
  set = "rewrite_by_lua can wait",
  log = "holdfast.finish() releases there; for anything else " .. TIMER,
  exit_worker = "nothing can wait in a worker that ends; what is held ends with its lease",
}

-- The level, as for error, of the first function that is not holdfast's.
local function level_of_caller()
  local here = debug.getinfo(1, "S").source:match("^(.*)resty%.lua$")
  for level = 2, 20 do
    local info = debug.getinfo(level, "S")
    if not info or info.source:sub(1, #here) ~= here then return level - 1 end
  end
  return 1
end

local function check_phase(what)
  local phase = get_phase()
  if PHASES_THAT_WAIT[phase] then return end
  local name = phase == "ssl_session_store" and phase or phase .. "_by_lua"
  error(("holdfast: %s has to wait for the server, which is impossible in %s; %s"):format(
    what, name, ADVICE[phase] or TIMER), level_of_caller())
end

local function wait(pump, client, op, number, mark)
  local waiter = { ready = borrow(), op = op, mark = mark }
  pump.waiting[number] = waiter
  mark.waits = mark.waits + 1
  repeat
    local posted = waiter.ready:wait(LOOK)
    if not posted then revive(pump, client) end
  until operation.is_done(op)
  give_back(waiter.ready)
  if waiter.given_up then return false end
  pump.waiting[number] = nil
  mark.waits = mark.waits - 1
  return true
end

local GIVES_BACK = { release = true, complete = true, force_release = true }

local function settle(pump, lock, kind, mark, first, ...)
  if kind == "acquire" then
    if first then keep(lock, mark) end
  elseif GIVES_BACK[kind] and raw.holds(lock) == 0 then
    forget(lock)
  end
  if pump.brief and pump.clock then wake_clock(pump) end
  return first, ...
end

local function call(lock, kind, seconds, record)
  check_phase(kind)
  local client = raw.data(lock).client
  local pump, mark = pump_of(client), identify()
  local op, number = raw.begin(lock, kind, seconds, record)
  if operation.is_done(op) and kind ~= "release" then return operation.finish(op) end
  local started, message = start(pump, client)
  if not started then
    operation.finish(op)
    return nil, "holdfast: no timer to work in: " .. message, "unreachable"
  end
  local calls = #pump.chores == ROLES and pump.links[1] -- the request of a client with one server goes there
  local writes_soon = pump.clock and calls and calls.socket and calls.kicked -- and turns after that
  if not writes_soon then turn(pump) end
  if not operation.is_done(op) and not wait(pump, client, op, number, mark) then
    return nil, "holdfast: this request's ngx.ctx was replaced while it waited", "interrupted"
  end
  return settle(pump, lock, kind, mark, operation.finish(op))
end

-- ---- the end of a request ----

local function abandon_holds(mark, touched)
  for lock, of in pairs(kept) do
    if of == mark then
      kept[lock] = nil
      raw.abandon(lock)
      touched[raw.data(lock).client] = true
    end
  end
  mark.holds = 0
end

local function abandon_waits(mark, touched)
  for client, pump in pairs(pumps) do
    for number, waiter in pairs(pump.waiting) do
      if waiter.mark == mark then
        give_up(pump, number, waiter)
        touched[client] = true
      end
    end
  end
  mark.waits = 0
end

local function abandon(mark)
  local touched = {}
  if mark.holds > 0 then abandon_holds(mark, touched) end
  if mark.waits > 0 then abandon_waits(mark, touched) end
  for client in pairs(touched) do
    local pump = pump_of(client)
    if start(pump, client) then turn(pump) end
  end
end

-- ---- what the API uses ----

local resty = { default = "resty", names = { "posix", "resty" }, lock = setmetatable({}, { __index = raw }) }

for _, kind in ipairs { "acquire", "release", "complete", "force_release", "extend", "check", "ttl", "info" } do
  local blocking = raw[kind]
  resty.lock[kind] = function(lock, seconds, record)
    if not raw.data(lock).external then return blocking(lock, seconds, record) end
    return call(lock, kind, seconds, record)
  end
end

for _, name in ipairs { "is_held", "holds", "remaining", "token", "lost", "owner" } do
  local known = raw[name]
  resty.lock[name] = function(lock)
    if not PHASES_WITHOUT_REQUEST[get_phase()] then identify() end
    return known(lock)
  end
end

function resty.ping(client)
  if not engine.is_external(client) then return core.client.ping(client) end
  local lock = raw.new(client, { client = client, key = "ping", lease = 1, wait = 0, token_ttl = 0 })
  local began_at = now()
  local answered, message, code = call(lock, "ping")
  if not answered then return nil, message, code end
  return now() - began_at
end

function resty.close(client, patience)
  core.client.close(client, patience)
  if not engine.is_external(client) then return end
  local pump = pump_of(client)
  pump.closing = true
  if not pump.running and engine.is_quiet(client) then return end
  if not start(pump, client) then return end
  turn(pump)
  if pump.clock then wake_clock(pump) end
  if not PHASES_THAT_WAIT[get_phase()] then return end
  local till = now() + patience
  while pump.running and now() < till do ngx.sleep(0.005) end
end

-- Begins a release or a complete that nobody waits for; in any phase of a request.
function resty.detach(lock, kind, seconds, record)
  local client = raw.data(lock).client
  local pump = pump_of(client)
  forget(lock)
  local op, number = raw.begin(lock, kind, seconds, record)
  pump.waiting[number] = { op = op, lock = lock }
  if start(pump, client) then turn(pump) end
end

-- finish calls ending(value), once, in this request.
function resty.at_end(ending, value)
  local mark = mark_here()
  mark.ending, mark.ending_value = ending, value
  mark.holds = mark.holds + 1 -- worth a look
end

-- The value given to at_end with this ending, in this request.
function resty.ending(ending)
  local mark = get_request() and marks[address()]
  while mark and mark.ending ~= ending do mark = mark.previous end
  return mark and mark.ending_value
end

local function end_mark(mark)
  local ending = mark.ending
  mark.ending = nil
  if ending then ending(mark.ending_value) end
  abandon(mark)
end

-- Lets go of all that this request holds or waits for; does no I/O itself.
function resty.finish()
  local mark = get_request() and marks[address()]
  while mark do
    local before = mark.previous
    end_mark(mark)
    mark = before
  end
end

return resty
