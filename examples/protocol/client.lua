-- A client of protocol 1 in plain Lua (5.4, LuaJIT) over LuaSocket, written from
-- docs/reference/protocol.md alone: a lock with fencing tokens and a fair wait, not re-entrant. One
-- thread; the caller renews. Times are milliseconds.
--
--   local client = protocol.new("redis://127.0.0.1:6379", { programs = DIR })
--   local hold = client:acquire("order:42", 5000)   -- nil: taken all that time
--   hold.token, hold:left(), hold:renew(), hold:release()
--
-- A call that fails raises an error, and the next call reconnects.

local socket = require "socket"
local resp = require "examples.protocol.resp"

local unpack = rawget(_G, "unpack") or table.unpack

local OPTIONS = { lease = 30000, grant_lease = 2000, token_ttl = 86400000, io_timeout = 5000 }
local REFUSED = { [-3] = "the key is a hash without a TTL: no lock",
  [-4] = "clients of a newer format wait first", [-6] = "a lock of another kind has the key" }

-- A clock that is never set: the uptime of Linux, in steps of 10 ms. Elsewhere LuaSocket has only
-- the wall clock.
local uptime = io.open("/proc/uptime")
local CLOCK_STEP = uptime and 10 or 0
if uptime then uptime:setvbuf("no") end
local function now()
  if not uptime then return socket.gettime() * 1000 end
  uptime:seek("set")
  return uptime:read("*n") * 1000
end

-- RFC 9562, version 8.
local function new_uuid()
  local file = assert(io.open("/dev/urandom", "rb"))
  local bytes = { file:read(16):byte(1, 16) }
  file:close()
  bytes[7], bytes[9] = 0x80 + bytes[7] % 16, 0x80 + bytes[9] % 64
  local hex = ("%02x"):rep(16):format(unpack(bytes))
  return table.concat({ hex:sub(1, 8), hex:sub(9, 12), hex:sub(13, 16), hex:sub(17, 20),
    hex:sub(21) }, "-")
end

-- ---- the client: one connection for commands, one for messages ----

local Client, Hold = {}, {}
Client.__index, Hold.__index = Client, Hold

local function text_of(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("*a")
  file:close()
  return text
end

local function new(url, options)
  local self = setmetatable({ url = url, uuid = new_uuid(), number = 0, text = {}, sha = {} },
    Client)
  for name, default in pairs(OPTIONS) do self[name] = math.floor(options[name] or default) end
  for _, name in ipairs { "acquire", "release", "leave", "extend", "renew" } do
    self.text[name] = text_of(("%s/%s.lua"):format(options.programs, name))
  end
  return self
end

function Client:close()
  for _, name in ipairs { "commands", "messages" } do
    if self[name] then self[name]:close() end
    self[name] = nil
  end
end

-- Calls fn with the named connection. After a failure it is closed, as replies may be under way.
function Client:over(name, fn, ...)
  self[name] = self[name] or resp.connect(self.url, self.io_timeout / 1000)
  local results = { pcall(fn, self[name], ...) }
  if results[1] then return unpack(results, 2, 3) end
  self:close()
  error(results[2], 0)
end

-- → the program's reply, and when it was sent
function Client:run(name, keys, ...)
  local words = { #keys, unpack(keys) }
  for _, word in ipairs { ... } do words[#words + 1] = word end
  for _ = 1, 2 do
    self.sha[name] = self.sha[name] or assert(self:over("commands", resp.call, "SCRIPT", "LOAD",
      self.text[name]))
    local sent = now()
    local reply, problem = self:over("commands", resp.call, "EVALSHA", self.sha[name],
      unpack(words))
    if reply then return reply, sent end
    if not problem:find("^NOSCRIPT") then error(problem, 0) end
    self.sha[name] = nil
  end
  error("the server forgets its scripts", 0)
end

-- Drops messages that arrive before the confirmation, because the caller asks again anyway.
local function listen(connection, verb, channel)
  resp.send(connection, verb, channel)
  repeat
    local push = assert(resp.receive(connection))
  until push[1] == verb:lower()
end

-- → text, channel; nothing if no message comes within `ms`
local function next_message(connection, ms)
  if #socket.select({ connection }, nil, math.max(0, ms) / 1000) == 0 then return end
  local push = assert(resp.receive(connection))
  return push[#push], push[#push - 1]
end

-- ---- a hold ----

local function keys_of(key)
  local named = key:find("{", 1, true) and key or "{" .. key .. "}"
  local queue = named == key and "holdfast_queue::" .. key or "holdfast_queue:" .. named
  return { key, "redisson_lock_token:" .. named, queue, "redisson_lock__channel:" .. named }
end

-- Takes the lock, and waits for it for at most `wait` ms. → the hold, or nil if it stayed taken
function Client:acquire(key, wait)
  self.number = self.number + 1
  local hold = { client = self, key = key, keys = keys_of(key), number = ("%d"):format(self.number),
    valid_until = 0 }
  hold.owner = self.uuid .. ":" .. hold.number
  hold.member = ("1l%s:%d"):format(hold.owner, self.token_ttl)
  setmetatable(hold, Hold)
  local deadline = now() + (wait or 0)
  local done, held = pcall(function()
    return hold:ask("") or (now() < deadline and hold:wait(deadline))
  end)
  if done and held then return hold end
  if done and hold.place == "" then return nil end
  local left, problem = pcall(hold.leave, hold)
  if not (done and left) then error(done and problem or held, 0) end
end

function Hold:believe(sent, ms) self.valid_until = sent + ms - ms / 100 - 2 - CLOCK_STEP end

-- Returns for how many ms the hold is still valid; 0 if it is lost.
function Hold:left() return math.max(0, self.valid_until - now()) end

-- Asks for the lock. → whether it is held
function Hold:ask(member)
  local client = self.client
  local reply, sent = client:run("acquire", self.keys, self.owner, client.grant_lease, 0, 0,
    client.lease,
    client.token_ttl, member)
  if type(reply) == "number" then
    assert(reply > 0 and reply % 8 == 0, "a reply to a different command")
    reply = { 1, reply, 0 }
  end
  if reply[1] == 1 then
    self.token = reply[2]
    self:believe(sent, client.lease)
    assert(self:left() > 0, "the answer came after the lease")
    return true
  end
  if reply[1] ~= 0 then error(REFUSED[reply[1]] or "unknown reply " .. reply[1], 0) end
  self.asked, self.ttl, self.ahead, self.foreign, self.place = sent, reply[2], reply[3],
    reply[4] == 1, reply[5]
  return false
end

-- Returns how long after a reply to ask again if no message comes.
function Hold:pause()
  local by_grant = self.client.grant_lease * math.max(1, math.floor(self.ahead / 100)) * (1
    - math.random() / 10)
  local by_ttl = self.ttl < 0 and by_grant or self.ttl + 1 + 5 * math.min(self.ahead, 80)
  return math.min(by_grant, by_ttl, 30000)
end

-- Waits in the queue. → whether the lock is held
function Hold:wait(deadline)
  local client, releases = self.client, self.keys[4]:gsub("[%*%?%[%]\\]", "\\%0")
  local pattern, held = false, false
  client:over("messages", listen, "SUBSCRIBE", "holdfast_grant:" .. client.uuid)
  while not held and now() < deadline do
    held = self:ask(self.member)
    if not held and self.foreign and self.ahead == 0 and not pattern then
      pattern = true
      client:over("messages", listen, "PSUBSCRIBE", releases)
    elseif not held then
      held = self:sleep(deadline)
    end
  end
  if pattern then client:over("messages", listen, "PUNSUBSCRIBE", releases) end
  return held
end

-- Waits for messages until it is time to ask again. → whether the lock is held
function Hold:sleep(deadline)
  local again = now() + self:pause()
  while now() < math.min(again, deadline) do
    local text, channel = self.client:over("messages", next_message, math.min(again, deadline)
      - now())
    if channel == self.keys[4] then return false end
    local what, rest = (text or ""):match("^1 (%a+) (.*)$")
    if what == "grant" then
      local kind, number, place, token, ms, key = rest:match("^(%l) (%d+) (%S+) (%d+) (%d+) (.*)$")
      local fits = kind == "l" and key == self.key and place == self.place
      if number == self.number then return fits and self:confirm(tonumber(ms), tonumber(token)) end
    elseif what == "turn" or what == "recheck" then
      local number, ms = rest:match("^(%d+) ?(%d*)$")
      if number == self.number then again = now() + (tonumber(ms) or 0) end
    end
  end
  return false
end

-- A grant is valid for `ms` from when we asked, and for the lease once the server confirms it.
-- → whether the lock is held
function Hold:confirm(ms, token)
  local client = self.client
  self:believe(self.asked, math.min(ms, client.grant_lease))
  if self:left() == 0 or token == 0 then return false end
  self.token = token
  local reply, sent = client:run("extend", { self.key, self.keys[3] }, self.owner, client.lease, "",
    self.member)
  if reply == 1 then self:believe(sent, client.lease) end
  return reply == 1 and self:left() > 0
end

-- Renews the lease. → whether the lock is still held
function Hold:renew()
  if self:left() == 0 then return false end
  local replies, sent = self.client:run("renew", { self.key }, self.owner, self.client.lease)
  if replies[1] == 1 and self:left() > 0 then self:believe(sent,
    self.client.lease) else self.valid_until = 0 end
  return self:left() > 0
end

-- Releases the lock. → true, or false if it was lost before
function Hold:release()
  self.valid_until = 0
  local reply = self.client:run("release", self.keys, self.owner, self.client.grant_lease, 0, 0, "")
  if reply == 3 then self:leave() end
  return reply > 0
end

-- Ends a wait, and frees the lock if the wait acquired it.
function Hold:leave()
  self.valid_until = 0
  for _ = 1, 1000 do
    local reply = self.client:run("leave", self.keys, self.owner, self.client.grant_lease, 0,
      self.member, "")
    if reply ~= 3 then return end
  end
end

return { new = new, now = now }
