-- Reads what the reference pages define, and where.

local pages = require "spec.support.pages"

local reference = {}

-- Returns the pages that define each option, code, metric and key. Guides may mention them.
function reference.pages()
  local list = { "docs/how-to/openresty.md", "docs/how-to/status_page.md" }
  for _, name in ipairs { "command", "connect", "holds", "inspect", "keys" } do
    list[#list + 1] = "docs/reference/" .. name .. ".md"
  end
  for _, path in ipairs(pages.all()) do
    if path:find "^docs/reference/api" then list[#list + 1] = path end
  end
  return list
end

-- annotated class of options -> the function that takes them, as named in messages
reference.function_of = {
  ["holdfast.client_options"] = "holdfast.new", ["holdfast.tls_options"] = "holdfast.new: tls",
  ["holdfast.lock_options"] = "client:lock", ["holdfast.with_lock_options"] = "client:with_lock",
  ["holdfast.lead_options"] = "client:lead", ["holdfast.once_options"] = "client:once",
  ["holdfast.idempotent_options"] = "client:idempotent", ["holdfast.fence_options"] = "client:fence",
  ["holdfast.one_by_one_options"] = "client:one_by_one", ["holdfast.execute_options"] = "one_by_one:execute",
  ["holdfast.semaphore_options"] = "client:semaphore", ["holdfast.with_permit_options"] = "semaphore:with_permit",
  ["holdfast.plain_semaphore_options"] = "client:plain_semaphore",
  ["holdfast.with_plain_permit_options"] = "plain_semaphore:with_permit",
  ["holdfast.latch_options"] = "client:latch", ["holdfast.admission_options"] = "holdfast.fence",
  ["holdfast.idempotent_request_options"] = "holdfast.idempotent_request",
}

local function cells_of(line)
  local cells = {}
  for cell in line:gsub("\\|", "/"):gmatch "|([^|]+)%f[|]" do
    cells[#cells + 1] = cell:match "^%s*(.-)%s*$"
  end
  return cells
end

-- → the tables of a page: { { path, heading = text of the heading above it, head, rows }, … },
-- where a head and a row are lists of cells
function reference.tables(path)
  local list, heading, now, before = {}, "", nil, nil
  for line in (pages.read(path):gsub("\n```.-\n```", "\n") .. "\n"):gmatch "([^\n]*)\n" do
    heading = line:match "^#+ (.*)$" or heading
    if line:find "^|[-|]+$" then
      now = { path = path, heading = heading, head = cells_of(before), rows = {} }
      list[#list + 1] = now
    elseif now and line:find "^|" then
      now.rows[#now.rows + 1] = cells_of(line)
    else
      now = nil
    end
    before = line
  end
  return list
end

-- → all tables in the reference pages whose first column has this head
function reference.tables_headed(head)
  local list = {}
  for _, path in ipairs(reference.pages()) do
    for _, found in ipairs(reference.tables(path)) do
      if found.head[1] == head then list[#list + 1] = found end
    end
  end
  return list
end

-- → the names of functions, such as "lock:acquire", that a line of an API page defines: a heading
-- or a list item that begins with them
function reference.defined_by(line)
  local heading, item = line:match "^##+ (.*)$", line:match "^%- (`.*)$"
  local names, rest = {}, heading or item or ""
  while true do
    local code, behind = rest:match "^`([^`]+)`,?%s*(.*)$"
    if not code then return names end
    local name = code:match "^([%w_]+[.:][%w_]+)%("
    if name and names[#names] ~= name then names[#names + 1] = name end
    rest = behind
  end
end

-- → { [name] = { path, … } } for the functions that the API pages define
function reference.functions()
  local found = {}
  for _, path in ipairs(reference.pages()) do
    if path:find "^docs/reference/api" then
      for line in pages.read(path):gsub("\n```.-\n```", "\n"):gmatch "[^\n]+" do
        for _, name in ipairs(reference.defined_by(line)) do
          found[name] = found[name] or {}
          table.insert(found[name], path)
        end
      end
    end
  end
  return found
end

return reference
