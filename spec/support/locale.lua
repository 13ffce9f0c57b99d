-- A locale with a decimal comma, letters beyond ASCII, a special capital of i, and an order
-- different from that of bytes. It is created in a temporary folder; a process finds it by
-- $LOCPATH.

local M = { name = "tr_TR" }

function M.make(folder)
  local command = ("localedef -i tr_TR -f ISO-8859-9 '%s/%s' 2>&1"):format(folder, M.name)
  local pipe = assert(io.popen(command))
  local output = pipe:read "*a"
  pipe:close()
  assert(io.open(("%s/%s/LC_NUMERIC"):format(folder, M.name)), "localedef, of Debian's package "
    .. "locales: " .. output):close()
end

return M
