-- Finds C code that tests for an operating system or uses a feature of only one system: lua5.4
-- tools/check_systems.lua
--
-- Only csrc/posix/system.h tests for the system; system.c, ready.c, crash.c and job.c have both
-- variants. All other code is POSIX.

local files = dofile "tools/files.lua"

local ASKS = { ["csrc/posix/system.h"] = true }
local HAS_BOTH = {
  ["csrc/posix/system.h"] = true, ["csrc/posix/system.c"] = true, ["csrc/posix/ready.c"] = true,
  ["csrc/posix/crash.c"] = true, ["csrc/posix/job.c"] = true,
}

local RULES = { -- a pattern, and the files that may contain it
  { "%f[%w_]dladdr%f[^%w_]", HAS_BOTH }, { "_GNU_SOURCE", HAS_BOTH },
  { "__linux__", ASKS }, { "HF_PORTABLE", ASKS },
  { "HF_LINUX", HAS_BOTH }, { "#include <linux/", {} },
}

for _, name in ipairs { "__APPLE__", "__FreeBSD__", "__NetBSD__", "__OpenBSD__", "__sun", "_WIN32",
  "__GLIBC__", "__gnu_linux__", "__unix__" } do
  RULES[#RULES + 1] = { "%f[%w_]" .. name .. "%f[^%w_]", {} }
end
for _, header in ipairs { "epoll", "eventfd", "inotify", "prctl", "random", "signalfd", "syscall",
  "timerfd", "event" } do
  RULES[#RULES + 1] = { "#include <sys/" .. header .. "%.h>", HAS_BOTH }
end

local function check(path)
  for number, line in files.numbered(files.c_code_of(path)) do
    for _, rule in ipairs(RULES) do
      if line:find(rule[1]) and not rule[2][path] then
        files.fail("%s:%d: one system's own: %s", path, number, line:match "^%s*(.-)%s*$")
      end
    end
  end
end

for _, path in ipairs(files.lines_of "find csrc -name '*.[ch]' -not -name embedded.h") do check(path) end
files.finish()
