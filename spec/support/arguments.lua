-- Arguments NAME=VALUE of a program, such as turns=3.
--
--   local options = arguments(arg, 5, { turns = 1 })
--
-- → `options` with the values of words[first], words[first + 1], ...: numbers where they are ones

return function(words, first, options)
  options = options or {}
  for i = first, #words do
    local name, value = words[i]:match("^([%a_]+)=(.*)$")
    options[name] = tonumber(value) or value
  end
  return options
end
