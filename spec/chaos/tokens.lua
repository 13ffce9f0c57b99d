-- The rule "token": one that was taken after another had been taken is higher.
--
-- `takes`: list of operations with start, stop and token → nil | what is wrong
return function(takes)
  local starts, stops, highest, at = {}, {}, nil, 1
  for i, op in ipairs(takes) do starts[i], stops[i] = op, op end
  table.sort(starts, function(a, b) return a.start < b.start end)
  table.sort(stops, function(a, b) return a.stop < b.stop end)
  for _, op in ipairs(starts) do
    while stops[at] and stops[at].stop < op.start do
      if not highest or stops[at].token > highest.token then highest = stops[at] end
      at = at + 1
    end
    if highest and op.token <= highest.token then
      return { rule = "token", at = op.stop, key = op.key, op = op, other = highest,
        text = ("token %.0f after %.0f"):format(op.token, highest.token) }
    end
  end
end
