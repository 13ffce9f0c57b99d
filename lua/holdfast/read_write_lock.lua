-- A read/write lock: a pair of locks on one key, one for reading and one for writing. See
-- docs/how-to/read_write.md.

local locks = require "holdfast.lock"
local options = require "holdfast.options"
local with_lock = require "holdfast.with_lock"

local check_self = options.check_self

---@class holdfast.read_write_lock
local ReadWriteLock = {}
ReadWriteLock.__index = ReadWriteLock
ReadWriteLock.__name = "holdfast.read_write_lock"

local read_write_lock = {}

-- Returns the read lock, which any number of owners may hold at the same time, while nobody writes.
---@return holdfast.lock lock
function ReadWriteLock:read()
  check_self(self, ReadWriteLock, "read_write_lock:read", 2)
  return self._read
end

-- Returns the write lock, which one owner holds while nobody else reads or writes.
---@return holdfast.lock lock
function ReadWriteLock:write()
  check_self(self, ReadWriteLock, "read_write_lock:write", 2)
  return self._write
end

-- Returns the key on the server, with the client's prefix.
---@return string key
function ReadWriteLock:key()
  check_self(self, ReadWriteLock, "read_write_lock:key", 2)
  return self._read:key()
end

function ReadWriteLock:__tostring()
  return ReadWriteLock.__name .. ": " .. self._read:key()
end

-- Returns a lock's options without `owner`, because each hold has its own owner, and without
-- `keep`, because the client never keeps these locks.
local function without_owner_and_keep(all)
  local known = {}
  for name, check in pairs(all) do known[name] = check end
  known.owner, known.keep = nil, nil
  return known
end

read_write_lock.options = without_owner_and_keep(locks.options)
read_write_lock.with_options = without_owner_and_keep(with_lock.options)

-- `opts` must already have been checked; `defaults` are the client's.
function read_write_lock.new(client, key, opts, defaults)
  return setmetatable({
    _read = locks.new(client, key, opts, defaults, "read"),
    _write = locks.new(client, key, opts, defaults, "write"),
  }, ReadWriteLock)
end

return read_write_lock
