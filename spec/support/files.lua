-- Whole files as strings.

local files = {}

-- Returns the content of the file, which must exist.
function files.read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("*a")
  file:close()
  return text
end

-- Returns the content of the file, "" if there is none.
function files.read_any(path)
  local file = io.open(path, "rb")
  local text = file and file:read("*a") or ""
  if file then file:close() end
  return text
end

-- Writes the strings to the file. → its path
function files.write(path, ...)
  local file = assert(io.open(path, "wb"))
  assert(file:write(...))
  file:close()
  return path
end

return files
