-- A Redis hash. Fields keep the order in which they were added, as in Redis's compact encoding.

local Hash = {}
Hash.__index = Hash

function Hash.new()
  return setmetatable({ fields = {}, values = {}, count = 0 }, Hash)
end

-- → whether the field is new
function Hash:set(field, value)
  local is_new = self.values[field] == nil
  if is_new then
    self.count = self.count + 1
    self.fields[self.count] = field
  end
  self.values[field] = value
  return is_new
end

-- → whether the field existed
function Hash:remove(field)
  if self.values[field] == nil then return false end
  self.values[field] = nil
  for i, name in ipairs(self.fields) do
    if name == field then table.remove(self.fields, i) break end
  end
  self.count = self.count - 1
  return true
end

return Hash
