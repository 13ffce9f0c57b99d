-- Finds kinds of locks and operations that no small world covers: lua5.4 tools/check_worlds.lua
--
-- Every kind in csrc/core/lock/kind.c has rows in spec/explore/worlds.lua for everything that its
-- locks can do, or a reason in this file. Every operation in HF_OP_LIST has a word in the rows, or
-- a reason.

local tools = dofile "tools/files.lua"
local read, fail = tools.read, tools.fail

package.path = "./?.lua;" .. package.path

local rows = require "spec.explore.worlds"

-- Words that must be in every kind's rows.
local COLUMNS = { "acquire", "release", "extend", "wait", "watchdog", "crash" }
-- The halves of a read/write lock share rows.
local ROWS_OF = { read = "read_write", write = "read_write" }
-- Words that do not apply to a kind: a latch has no holders, a plain semaphore has no leases.
local NO_LEASES = { acquire = true, release = true, extend = true, watchdog = true, crash = true }
local NOT_OF = {
  latch = NO_LEASES, plain_semaphore = NO_LEASES,
  guard = { extend = true }, -- no caller extends a run
}
-- An operation's word if it is not the operation's name; false if it changes nothing for a waiter.
local WORD_OF = {
  acquire = "holds", release = "holds", complete = "completes", extend = "extends",
  check = "checks", force_release = "breaks", set = "sets", acquire_all = "both",
  release_all = "both", raise = "quorum", pause = "times", info = false, ttl = false, ping = false,
  command = false, count = false, fenced = false, watch = false,
}

local function has_row(prefix, word)
  for _, row in ipairs(rows) do
    if row:sub(1, #prefix) == prefix and row:find(word, 1, true) then return true end
  end
  return false
end

local function check_kind(kind)
  local prefix, without = (ROWS_OF[kind] or kind) .. " ", NOT_OF[kind] or {}
  for _, column in ipairs(COLUMNS) do
    if not without[column] and not has_row(prefix, column) then
      fail("spec/explore/worlds.lua has no row for %q of the kind %s", column, kind)
    end
  end
  if not has_row(prefix, "") then fail("spec/explore/worlds.lua has no row for %s", kind) end
end

local function check_operation(name)
  local word = WORD_OF[name]
  if word == nil then word = name end
  if word and not has_row("", word) then
    fail("spec/explore/worlds.lua has no row with the operation %s", name)
  end
end

for name in read("csrc/core/lock/kind.c"):gmatch '%.name = "([^"]+)"' do check_kind(name) end
local list = read("csrc/core/holdfast.h"):match "#define HF_OP_LIST%(X%)(.-)\n\n"
for name in list:gmatch "X%([%u_]+, ([%l_]+)," do check_operation(name) end
tools.finish()
