std = "max"
cache = false
max_line_length = false -- tools/check_lines.lua
self = false
exclude_files = {
  "build/deb", "build/dist", "build/kind", "build/machines", "build/mutants", "build/opm", "build/peers", "build/protocol",
  "csrc/programs", ".luarocks", "lua_modules", "luarocks",
}

files["bin/holdfast"] = { globals = { "_" } } -- the part that is for sh
files["*.rockspec"] = { std = "+rockspec" }
-- its result differs between versions of Lua: process.succeeds
files["spec"] = { not_globals = { "os.execute" } }
files["spec/support/process.lua"] = { read_globals = { "os.execute" } }
files["spec/mutants/text.lua"] = { read_globals = { "os.execute" } } -- it is run by Lua 5.4
files["spec/sim/sources.lua"] = { read_globals = { "os.execute" } } -- its result is not looked at
files["spec/**/*_spec.lua"] = { std = "+busted" }
files["spec/interop/*.lua"] = { std = "+busted" }
files["spec/fixtures/kind/*.lua"] = { std = "+busted" }
files["spec/fixtures/operation/*.lua"] = { std = "+busted" }
files["lua/holdfast/loop/ngx.lua"] = { std = "+ngx_lua" }
files["lua/holdfast/loop/cosockets.lua"] = { std = "+ngx_lua" }
files["spec/site/*.lua"] = { std = "+busted" }
files["spec/browser/*.lua"] = { std = "+busted" }
files["spec/fencing/*_fencing.lua"] = { std = "+busted" }
files["spec/types/*_types.lua"] = { std = "+busted" }
files["lua/holdfast/shared_metrics.lua"] = { std = "+ngx_lua" }
files["lua/holdfast/status.lua"] = { std = "+ngx_lua" }
files["lua/holdfast/status_json.lua"] = { std = "+ngx_lua" }
files["lua/holdfast/status_view.lua"] = { std = "+ngx_lua" }
files["lua/holdfast/status_record.lua"] = { std = "+ngx_lua" }
files["lua/holdfast/timer.lua"] = { std = "+ngx_lua" }
files["lua/holdfast/admission.lua"] = { std = "+ngx_lua" }
files["lua/holdfast/idempotent_request.lua"] = { std = "+ngx_lua" }
files["examples/openresty/handlers"] = { std = "+ngx_lua", read_globals = { "locks" } }

-- the programs as make programs writes them
files["build/programs"] = {
  std = {
    globals = {},
    read_globals = {
      "redis", "KEYS", "ARGV", "cjson", "struct", "bit", "ipairs", "pairs", "next", "select", "tonumber", "tostring", "type",
      "unpack", "error", "pcall", "string", "table", "math",
    },
  },
  ignore = { "211" },
}

