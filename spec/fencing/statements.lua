-- The statements of docs/explanation/fencing.md for one database.

local databases = require "spec.support.databases"
local pages = require "spec.support.pages"

local statements = {}

-- → name → a list, in the order of the page
function statements.of(database)
  local all = {}
  for _, block in ipairs(pages.blocks_in("docs/explanation/fencing.md", "sql")) do
    local whom, name = block.lines[1]:match "^%-%- ([%a, ]+): (.*)$"
    if (", " .. whom):lower():find(", " .. database, 1, true) then
      all[name] = all[name] or {}
      table.insert(all[name], (table.concat(block.lines, "\n", 2):gsub(";$", "")))
    end
  end
  return all
end

-- Makes the page's tables and triggers.
function statements.prepare(connection, all)
  for _, statement in ipairs(all.once) do assert(databases.run(connection, statement)) end
end

local function quoted(value)
  return type(value) == "string" and ("'%s'"):format(value) or ("%.0f"):format(value)
end

-- Runs the one statement of this name. → how many rows it has changed
function statements.run(connection, all, name, values)
  assert(#all[name] == 1, name)
  local text = all[name][1]:gsub(":(%l+)", function(given) return quoted(values[given]) end)
  return assert(databases.run(connection, text))
end

return statements
