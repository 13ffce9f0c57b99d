-- Converts between values and bytes in the Redis protocol, version 2.
--
-- A reply is a Lua value: a string is a bulk string, a number an integer, false a nil, { ok = text
-- } a status, { err = text } an error, any other table a list of replies; { replies = list } means
-- several replies in a row. Integers are exact up to 2^53. A parser accepts input in pieces of any
-- size, and buffers it until an item is complete.

local resp = {}

local MAX_INLINE_SIZE = 64 * 1024 -- bytes
local MAX_MULTIBULK_COUNT = 2147483647
local MAX_BULK_SIZE = 512 * 1024 * 1024 -- bytes
local MAX_UNAUTHENTICATED = { arguments = 10, bytes = 16384 }

local floor = math.floor
local find, sub, format = string.find, string.sub, string.format

local function integer_text(number)
  return format("%.0f", number == 0 and 0 or number)
end

local function write(out, value)
  local kind = type(value)
  if kind == "string" then
    out[#out + 1] = "$" .. integer_text(#value) .. "\r\n" .. value .. "\r\n"
  elseif kind == "number" then
    out[#out + 1] = ":" .. integer_text(value) .. "\r\n"
  elseif value == false then
    out[#out + 1] = "$-1\r\n"
  elseif value.err then
    out[#out + 1] = "-" .. value.err:gsub("[\r\n]", " ") .. "\r\n"
  elseif value.ok then
    out[#out + 1] = "+" .. value.ok:gsub("[\r\n]", " ") .. "\r\n"
  else
    if not value.replies then out[#out + 1] = "*" .. integer_text(#value) .. "\r\n" end
    for _, item in ipairs(value.replies or value) do write(out, item) end
  end
end

function resp.encode(value)
  local out = {}
  write(out, value)
  return table.concat(out)
end

-- Encodes a command as a client does.
function resp.command(arguments)
  local out = { "*" .. #arguments .. "\r\n" }
  for i, argument in ipairs(arguments) do
    local text = tostring(argument)
    out[i + 1] = "$" .. #text .. "\r\n" .. text .. "\r\n"
  end
  return table.concat(out)
end

-- Parses an integer as Redis does: no plus sign, leading zero or space. → number | nil
function resp.integer(text)
  if not (find(text, "^%-?[1-9]%d*$") or text == "0") then return nil end
  local number = tonumber(text)
  if #text >= 19 and (number >= 2 ^ 63 or number < -2 ^ 63) then return nil end
  return number
end

-- Reads the line that starts at `at`. → text, position after it | nil if incomplete
local function line_at(buffer, at)
  local stop = find(buffer, "\r", at, true)
  if not stop or stop == #buffer then return nil end
  return sub(buffer, at, stop - 1), stop + 2
end

local Requests = {}
Requests.__index = Requests

-- Creates a parser for a client's commands.
function resp.request_parser()
  return setmetatable({ buffer = "", at = 1, is_unauthenticated = false }, Requests)
end

function Requests:feed(bytes)
  self.buffer = sub(self.buffer, self.at) .. bytes
  self.at = 1
end

local function bulk_at(self, at)
  local line, start = line_at(self.buffer, at)
  if not line then
    if #self.buffer - at > MAX_INLINE_SIZE then
      return nil, "Protocol error: too big bulk count string"
    end
    return nil
  end
  if sub(line, 1, 1) ~= "$" then
    return nil, format("Protocol error: expected '$', got '%s'", line == "" and "\r"
      or sub(line, 1, 1))
  end
  local length = resp.integer(sub(line, 2))
  if not length or length < 0 or length > MAX_BULK_SIZE then
    return nil, "Protocol error: invalid bulk length"
  end
  if self.is_unauthenticated and length > MAX_UNAUTHENTICATED.bytes then
    return nil, "Protocol error: unauthenticated bulk length"
  end
  if #self.buffer < start + length + 1 then return nil end
  return sub(self.buffer, start, start + length - 1), start + length + 2
end

local function count_at(self, at)
  local line, start = line_at(self.buffer, at)
  if not line then
    if #self.buffer - at > MAX_INLINE_SIZE then
      return nil, "Protocol error: too big mbulk count string"
    end
    return nil
  end
  local count = resp.integer(sub(line, 2))
  if not count or count > MAX_MULTIBULK_COUNT then
    return nil, "Protocol error: invalid multibulk length"
  end
  if self.is_unauthenticated and count > MAX_UNAUTHENTICATED.arguments then
    return nil, "Protocol error: unauthenticated multibulk length"
  end
  return count, start
end

local function words(line)
  local list = {}
  for word in line:gmatch("%S+") do list[#list + 1] = word end
  return list
end

-- Reads an inline command: a line of words. Quoted words are not supported.
local function inline_at(self, at)
  local stop = find(self.buffer, "\n", at, true)
  if stop then return words(sub(self.buffer, at, stop - 1)), stop + 1 end
  if #self.buffer - at <= MAX_INLINE_SIZE then return nil end
  return nil, "Protocol error: too big inline request"
end

local function command_at(self, at)
  if sub(self.buffer, at, at) ~= "*" then return inline_at(self, at) end
  local count, next_at = count_at(self, at)
  if not count then return nil, next_at end
  local list = {}
  for i = 1, count do
    local text
    text, next_at = bulk_at(self, next_at)
    if not text then return nil, next_at end
    list[i] = text
  end
  return list, next_at
end

-- → arguments | nil if incomplete | nil, the error that ends the connection
function Requests:next()
  while self.at <= #self.buffer do
    local list, next_at = command_at(self, self.at)
    if not list then return nil, next_at end
    self.at = next_at
    if #list > 0 then return list end
  end
  return nil
end

local Replies = {}
Replies.__index = Replies

-- Creates a parser for a server's replies.
function resp.reply_parser()
  return setmetatable({ buffer = "", at = 1 }, Replies)
end

Replies.feed = Requests.feed

local reply_at

local function list_at(buffer, at, count)
  local list = {}
  for i = 1, count do
    local item
    item, at = reply_at(buffer, at)
    if item == nil then return nil end
    list[i] = item
  end
  return list, at
end

function reply_at(buffer, at)
  local line, start = line_at(buffer, at)
  if not line then return nil end
  local kind, text = sub(line, 1, 1), sub(line, 2)
  if kind == "+" then return { ok = text }, start end
  if kind == "-" then return { err = text }, start end
  local number = assert(resp.integer(text), "not a reply: " .. line)
  if kind == ":" then return number, start end
  if number < 0 then return false, start end
  if kind == "*" then return list_at(buffer, start, floor(number)) end
  assert(kind == "$", "not a reply: " .. line)
  if #buffer < start + number + 1 then return nil end
  return sub(buffer, start, start + number - 1), start + number + 2
end

-- → reply | nil if incomplete
function Replies:next()
  local value, next_at = reply_at(self.buffer, self.at)
  if value ~= nil then self.at = next_at end
  return value
end

return resp
