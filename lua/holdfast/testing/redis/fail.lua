-- Raises an error that ends the running command and becomes its reply. Any other error is a fault
-- of the caller or of the small Redis, and never becomes a reply.

local Failure = {}

local function fail(text)
  error(setmetatable({ err = text }, Failure), 0)
end

return setmetatable({
  is = function(value) return getmetatable(value) == Failure end,
}, { __call = function(_, text) return fail(text) end })
