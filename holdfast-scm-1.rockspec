rockspec_format = "3.0"
package = "holdfast"
version = "scm-1"

source = { url = "git+https://github.com/holdfast/holdfast.git" }

description = {
  summary = "Distributed locks for Lua on Redis",
  detailed = [[
    A reentrant lock with a watchdog, first-come-first-served waiting and fencing tokens, which shares its layout
    in Redis with Redisson. A C core decides; plain Lua and OpenResty drive it.
  ]],
  labels = { "redis", "lock", "concurrency", "openresty" },
  license = "MIT",
}

supported_platforms = { "linux" }
dependencies = { "lua >= 5.1" }
external_dependencies = { HIREDIS = { header = "hiredis/hiredis.h", library = "hiredis" } }
test_dependencies = { "busted" }
test = { type = "busted" }

build = {
  type = "builtin",
  modules = {
    ["holdfast.core"] = {
      sources = {
      },
      defines = { "_GNU_SOURCE" },
      incdirs = { "csrc/core", "csrc/posix", "$(HIREDIS_INCDIR)" },
      libdirs = { "$(HIREDIS_LIBDIR)" },
      libraries = { "hiredis", "pthread" },
    },
  },
}
