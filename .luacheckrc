std = "max"
cache = false
max_line_length = 120
self = false
exclude_files = { "csrc/programs", ".luarocks", "lua_modules", "luarocks" }

files["*.rockspec"] = { std = "+rockspec" }
files["spec/**/*_spec.lua"] = { std = "+busted" }
files["spec/interop/*.lua"] = { std = "+busted" }
files["lua/holdfast/resty.lua"] = { std = "+ngx_lua" }
files["lua/holdfast/idempotent_request.lua"] = { std = "+ngx_lua" }
files["examples/openresty/handlers"] = { std = "+ngx_lua", read_globals = { "locks" } }

-- the programs with their fragments in place, as they are sent to the server
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

files["spec"] = { max_line_length = 132 }
