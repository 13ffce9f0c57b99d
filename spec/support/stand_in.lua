-- stand_in(current) → a table that stands for the object which current() returns, a different one
-- from test to test: its fields, and its methods.
return function(current)
  return setmetatable({}, { __index = function(_, name)
    local object = current()
    local value = object[name]
    if type(value) ~= "function" then return value end
    return function(_, ...) return value(object, ...) end
  end })
end
