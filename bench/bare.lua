-- The commands of build/bench/baseline, the bare loop in C.

local bare = {}

local COMPARE_AND_DELETE = [[
if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end
return 0]]

-- → the two commands of a cycle of SET NX PX, and a script that compares and deletes
function bare.set_nx(server, key)
  local sha1 = server:cli("SCRIPT", "LOAD", COMPARE_AND_DELETE)
  return { { "SET", key, "0123456789abcdef", "NX", "PX", "30000" },
    { "EVALSHA", sha1, 1, key, "0123456789abcdef" } }
end

-- Writes the commands for the bare loop. → the path
function bare.write(path, commands)
  local file = assert(io.open(path, "wb"))
  for _, args in ipairs(commands) do
    file:write(#args, "\n")
    for _, arg in ipairs(args) do file:write(#tostring(arg), "\n", arg, "\n") end
  end
  file:close()
  return path
end

return bare
