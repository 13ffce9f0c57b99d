rockspec_format = "3.0"
package = "holdfast"
version = "scm-1"

source = { url = "git+https://github.com/holdfast/holdfast.git" }

description = {
  summary = "Distributed locks for Lua on Redis",
  detailed = [[
    A reentrant lock with a watchdog, first-come-first-served waiting and fencing tokens, which shares its keys
    in Redis with Redisson. A C core does the work; use it from plain Lua or OpenResty.
  ]],
  homepage = "https://github.com/holdfast/holdfast",
  labels = { "redis", "lock", "concurrency", "openresty" },
  license = "MIT",
}

supported_platforms = { "unix" }
dependencies = { "lua >= 5.1, < 5.6" }
external_dependencies = {
  HIREDIS = { header = "hiredis/hiredis.h", library = "hiredis" },
  OPENSSL = { header = "openssl/ssl.h", library = "ssl" },
}
test_dependencies = { "busted" }
test = { type = "busted" }

build = {
  type = "make",
  build_target = "rock",
  install_target = "rock-install",
  build_variables = {
    CFLAGS = "$(CFLAGS)",
    LUA = "$(LUA)",
    LUA_INCDIR = "$(LUA_INCDIR)",
    HIREDIS_INCDIR = "$(HIREDIS_INCDIR)",
    HIREDIS_LIBDIR = "$(HIREDIS_LIBDIR)",
    OPENSSL_INCDIR = "$(OPENSSL_INCDIR)",
    OPENSSL_LIBDIR = "$(OPENSSL_LIBDIR)",
  },
  install_variables = { LUADIR = "$(LUADIR)", LIBDIR = "$(LIBDIR)" },
  install = { bin = { holdfast = "bin/holdfast" } },
  copy_directories = { "completions", "docs", "examples" },
}
