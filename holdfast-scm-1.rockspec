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
external_dependencies = {
  HIREDIS = { header = "hiredis/hiredis.h", library = "hiredis" },
  OPENSSL = { header = "openssl/ssl.h", library = "ssl" },
}
test_dependencies = { "busted" }
test = { type = "busted" }

build = {
  type = "builtin",
  install = { bin = { holdfast = "bin/holdfast" } },
  modules = {
    ["holdfast.core"] = {
      sources = {
        "csrc/core/acquire.c",
        "csrc/core/ballot.c",
        "csrc/core/buffer.c",
        "csrc/core/calls.c",
        "csrc/core/client.c",
        "csrc/core/cluster.c",
        "csrc/core/events.c",
        "csrc/core/failure.c",
        "csrc/core/holds.c",
        "csrc/core/keeper.c",
        "csrc/core/lease.c",
        "csrc/core/names.c",
        "csrc/core/operation.c",
        "csrc/core/programs.c",
        "csrc/core/quorum.c",
        "csrc/core/reply.c",
        "csrc/core/request.c",
        "csrc/core/ring.c",
        "csrc/core/sentinel.c",
        "csrc/core/session.c",
        "csrc/core/several.c",
        "csrc/core/slots.c",
        "csrc/core/types.c",
        "csrc/core/url.c",
        "csrc/lua/call.c",
        "csrc/lua/client.c",
        "csrc/lua/engine.c",
        "csrc/lua/lock.c",
        "csrc/lua/module.c",
        "csrc/lua/owner.c",
        "csrc/lua/several.c",
        "csrc/lua/template.c",
        "csrc/lua/watchdog.c",
        "csrc/posix/driver.c",
        "csrc/posix/net.c",
        "csrc/posix/tls.c",
      },
      defines = { "_GNU_SOURCE" },
      incdirs = { "csrc/core", "csrc/posix", "$(HIREDIS_INCDIR)", "$(OPENSSL_INCDIR)" },
      libdirs = { "$(HIREDIS_LIBDIR)", "$(OPENSSL_LIBDIR)" },
      libraries = { "hiredis", "ssl", "crypto", "pthread" },
    },
    ["holdfast.process"] = {
      sources = {
        "csrc/process/child.c",
        "csrc/process/module.c",
        "csrc/process/signals.c",
        "csrc/process/terminal.c",
      },
      defines = { "_GNU_SOURCE" },
      incdirs = { "csrc/process" },
      libraries = { "m" },
    },
    ["holdfast.client"] = "lua/holdfast/client.lua",
    ["holdfast.command.bench"] = "lua/holdfast/command/bench.lua",
    ["holdfast.command.break"] = "lua/holdfast/command/break.lua",
    ["holdfast.command.exits"] = "lua/holdfast/command/exits.lua",
    ["holdfast.command.identity"] = "lua/holdfast/command/identity.lua",
    ["holdfast.command"] = "lua/holdfast/command/init.lua",
    ["holdfast.command.job"] = "lua/holdfast/command/job.lua",
    ["holdfast.command.json"] = "lua/holdfast/command/json.lua",
    ["holdfast.command.locks"] = "lua/holdfast/command/locks.lua",
    ["holdfast.command.ls"] = "lua/holdfast/command/ls.lua",
    ["holdfast.command.options"] = "lua/holdfast/command/options.lua",
    ["holdfast.command.output"] = "lua/holdfast/command/output.lua",
    ["holdfast.command.ping"] = "lua/holdfast/command/ping.lua",
    ["holdfast.command.run"] = "lua/holdfast/command/run.lua",
    ["holdfast.command.settings"] = "lua/holdfast/command/settings.lua",
    ["holdfast.command.show"] = "lua/holdfast/command/show.lua",
    ["holdfast.command.top"] = "lua/holdfast/command/top.lua",
    ["holdfast.command.verb"] = "lua/holdfast/command/verb.lua",
    ["holdfast.driver"] = "lua/holdfast/driver.lua",
    ["holdfast.idempotent"] = "lua/holdfast/idempotent.lua",
    ["holdfast.idempotent_request"] = "lua/holdfast/idempotent_request.lua",
    holdfast = "lua/holdfast/init.lua",
    ["holdfast.lock"] = "lua/holdfast/lock.lua",
    ["holdfast.loss"] = "lua/holdfast/loss.lua",
    ["holdfast.multi_lock"] = "lua/holdfast/multi_lock.lua",
    ["holdfast.one_by_one"] = "lua/holdfast/one_by_one.lua",
    ["holdfast.options"] = "lua/holdfast/options.lua",
    ["holdfast.record"] = "lua/holdfast/record.lua",
    ["holdfast.resty"] = "lua/holdfast/resty.lua",
    ["holdfast.servers"] = "lua/holdfast/servers.lua",
    ["holdfast.traceback"] = "lua/holdfast/traceback.lua",
    ["holdfast.with_lock"] = "lua/holdfast/with_lock.lua",
  },
}
