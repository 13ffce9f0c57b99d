-- Checks the paths of an acquire, a release and a grant through the core's files, as recorded in a
-- run of spec/unit/path.c: lua5.4 tools/check_path.lua
--
-- A file is on the stack at most twice: the second time is a callback during its own call. The
-- operation's own file is called twice in total: at the beginning, and with the reply.

local tools = dofile "tools/files.lua"
local lines_of, fail = tools.lines_of, tools.fail

local BUILD = "build/path"
local PROGRAM = BUILD .. "/unit/path"
local MAX_DEPTH = 2
local CALLED = { -- path → file → maximum calls from other files
  acquire = { ["op/acquire.c"] = 2 }, release = { ["op/calls.c"] = 2 },
  grant = {},
}

-- path → maximum calls from one file to another, including the driver's calls between two steps
local MAX_ENTRIES = { acquire = 96, release = 83 }

-- → { address → file } of the functions in the program, and the address of hf_client_begin
local function files_by_address()
  local files, anchor = {}, nil
  for _, line in ipairs(lines_of("nm -l --defined-only " .. PROGRAM)) do
    local address, name, path = line:match "^(%x+) %a (%S+)%s+(%S+):%d+$"
    if address then
      files[tonumber(address, 16)] = path:match "csrc/core/(.+%.c)$"
      if name == "hf_client_begin" then anchor = tonumber(address, 16) end
    end
  end
  return files, assert(anchor, "the program has no debug information")
end

-- → how often the file is on the stack; consecutive functions of a file count once
local function times_on(stack, file)
  local times = 0
  for i = 1, #stack do
    if stack[i] == file and stack[i - 1] ~= file then times = times + 1 end
  end
  return times
end

local function enter(path, stack, file)
  local called = stack[#stack] ~= file
  stack[#stack + 1] = file
  if not file or not called then return end
  local seen = path[file] or { calls = 0, deepest = 0 }
  path[file] = seen
  seen.calls = seen.calls + 1
  seen.deepest = math.max(seen.deepest, times_on(stack, file))
end

-- → { name → file → { calls, deepest } }
local function read_paths(lines)
  local files, anchor = files_by_address()
  local paths, path, stack, base = {}, nil, {}, 0
  for _, line in ipairs(lines) do
    local address = line:match "^%+ 0x(%x+)$"
    if address then
      enter(path, stack, files[tonumber(address, 16) - base] or false)
    elseif line == "-" then
      stack[#stack] = nil
    elseif line:find "^hf_client_begin " then
      base = tonumber(line:match "0x(%x+)", 16) - anchor
    elseif line:find "^path " then
      path, stack = {}, {}
      paths[line:match "^path (.+)$"] = path
    end
  end
  return paths
end

local function entries_of(path)
  local entries = 0
  for _, seen in pairs(path) do entries = entries + seen.calls end
  return entries
end

local function check(name, path, called)
  local entries, max = entries_of(path), MAX_ENTRIES[name]
  if max and entries > max then fail("%s: files call each other %d times, not %d", name, entries, max) end
  for file, seen in pairs(path) do
    if seen.deepest > MAX_DEPTH then
      fail("%s: %s is on the path %d times at once", name, file, seen.deepest)
    end
  end
  for file, most in pairs(called) do
    local calls = path[file] and path[file].calls or 0
    if calls == 0 or calls > most then fail("%s: %s is called %d times", name, file, calls) end
  end
end

lines_of(("make -s BUILD=%s SANITIZE=-finstrument-functions CFLAGS='-O0 -g' %s"):format(BUILD, PROGRAM))
local paths = read_paths(lines_of(PROGRAM))
for name, called in pairs(CALLED) do
  if paths[name] then check(name, paths[name], called) else fail("there is no path of %s", name) end
end
tools.finish()
