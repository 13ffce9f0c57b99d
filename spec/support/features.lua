-- The features of the Lua that runs the specs.

local features = {}

local thread = coroutine.create(function() pcall(coroutine.yield, true) end)
features.yields_in_pcall = select(2, coroutine.resume(thread)) == true

-- luacheck: ignore 113
features.closes_variables = (loadstring or load)("local held <close> = nil") ~= nil

-- whether os.exit(code, true) closes the state
features.exit_closes = _VERSION ~= "Lua 5.1" or rawget(_G, "jit") ~= nil

return features
