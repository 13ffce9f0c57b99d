-- The annotations for editors are complete: the names in lua/holdfast/types.lua are those of the
-- core, and each documented function names its parameters, its results and its options.

local files = require "spec.support.files"
local holdfast = require "holdfast"
local options = require "holdfast.options"
local redis = require "spec.support.redis"
local reference = require "spec.support.reference"

local read = files.read

local TYPES = read "lua/holdfast/types.lua"

-- Returns the values of an enumeration, which are the keys of its table, sorted.
local function enumerated(name)
  local list, text = {}, TYPES:match("%-%-%-@enum %(key%) " .. name:gsub("%.", "%%.") .. "\nlocal _ = (%b{})")
  for value in assert(text, name):gmatch "\n  ([a-z_]+) = 1," do list[#list + 1] = value end
  table.sort(list)
  return list
end

-- Returns the names in a list of the core's sources, sorted.
local function listed(path, from, pattern, but)
  local text, list = read(path), {}
  local body = assert(text:match(from), path)
  for value in body:gmatch(pattern) do
    if not but[value] then list[#list + 1] = value end
  end
  table.sort(list)
  return list
end

describe("the type annotations", function()
  it("list each error code", function()
    local named = listed("csrc/core/base/failure.h", "HF_CODE_LIST%(X%)(.-)#define", "X%([A-Z_]+, ([a-z_]+)%)",
      { ok = true, no_memory = true })
    assert.same(named, enumerated "holdfast.code")
  end)

  it("list each counter of client:stats()", function()
    local server = redis.start()
    local client = holdfast.new(server:url())
    local counted, stats = {}, client:stats()
    for name in TYPES:match("@class holdfast.stats\n(.-)\n\n"):gmatch "@field ([a-z_]+)" do
      assert.is_truthy(stats[name], name)
      stats[name] = nil
    end
    assert.same({}, stats)
    for name in pairs(client:stats().failures) do
      if name ~= "no_memory" then counted[#counted + 1] = name end
    end
    table.sort(counted)
    assert.same(counted, enumerated "holdfast.code")
    client:close()
    server:stop()
  end)

  it("list each reason of a loss", function()
    local named = listed("csrc/core/holdfast.h", "HF_LOST_LIST%(X%)(.-)\n\n", "X%([A-Z_]+, ([a-z_]+)%)", {})
    assert.same(named, enumerated "holdfast.lost_reason")
  end)

  it("list each event", function()
    local named = listed("csrc/core/op/observe.c", "hf_event_name.-{(.-)};", '"([a-z_]+)"', {})
    assert.same(named, enumerated "holdfast.event_name")
  end)
end)

-- ---- functions ----

local function lines_of(path)
  local list = {}
  for line in read(path):gmatch("([^\n]*)\n") do list[#list + 1] = line end
  return list
end

-- Returns the paths of the sources with annotations.
local function sources()
  local pipe, list = assert(io.popen "ls lua/holdfast/*.lua"), {}
  for path in pipe:lines() do list[#list + 1] = path end
  pipe:close()
  return list
end

-- Returns a set of the local tables that are annotated as classes, by their names.
local function classes_in(lines)
  local names, annotated = {}, false
  for _, line in ipairs(lines) do
    if line:find "^%-%-%-" then
      annotated = annotated or line:find "^%-%-%-@class" ~= nil
    else
      local name = annotated and line:match "^local (%w+) ="
      if name then names[name] = true end
      annotated = false
    end
  end
  return names
end

-- Returns the function that begins in line `number`: { parameters, comment, body }, as strings.
local function function_at(lines, number)
  local first, last = number, number
  while (lines[first - 1] or ""):find "^%-%-" do first = first - 1 end
  while lines[last] ~= "end" do last = last + 1 end
  return {
    parameters = lines[number]:match "%((.-)%)",
    comment = table.concat(lines, "\n", first, number - 1) .. "\n",
    body = table.concat(lines, "\n", number, last),
  }
end

-- Returns the functions of all annotated classes by their names in the API's pages: "client:lock".
local function functions()
  local found = {}
  for _, path in ipairs(sources()) do
    local lines = lines_of(path)
    local classes = classes_in(lines)
    for number, line in ipairs(lines) do
      local class, name = line:match "^function ([%w_]+)([.:]%l[%w_]*)%("
      if classes[class] then
        found[class:gsub("(%l)(%u)", "%1_%2"):lower() .. name] = function_at(lines, number)
      end
    end
  end
  return found
end

local function all(text, pattern)
  local list = {}
  for one in text:gmatch(pattern) do list[#list + 1] = one end
  return list
end

-- Returns what is missing in a function's annotation, or nil. `coded`: its failures have codes.
local function missing_in(one, coded)
  local annotated = all(one.comment, "%-%-%-@param ([%w_]+)")
  local returned = all(one.comment, "%-%-%-@return ([^\n]+)")
  if table.concat(all(one.parameters, "%f[%w]%a[%w_]*"), " ") ~= table.concat(annotated, " ") then
    return "parameters"
  elseif (one.body:find "%f[%w]return [^\n]" ~= nil) ~= (#returned > 0) then
    return "results"
  end
  for i, text in ipairs(returned) do
    local type_and_name = text:gsub("%b()", ""):gsub("%b<>", ""):gsub("%b{}", "{}")
    if not type_and_name:find "^%S+ %S" then return "name of result " .. i end
    local is_code = (returned[i + 1] or ""):find "^holdfast%.code%? code"
    if coded and text:find "^string%? message" and not is_code then return "code" end
  end
end

describe("the annotation", function()
  local found = functions()

  for name, one in pairs(found) do
    local coded = not name:find "^resty_lock" -- lua-resty-lock's API has none
    it("of a function is complete: " .. name, function() assert.is_nil(missing_in(one, coded)) end)
  end

  it("exists for each documented function", function()
    local count = 0
    for name in pairs(reference.functions()) do
      count = count + 1
      assert.is_truthy(found[name], name)
    end
    assert.is_true(count > 50)
  end)
end)

-- ---- options ----

-- Returns the fields of each class of options: name → { [field] = true }.
local function annotated_options()
  local found = {}
  for _, path in ipairs(sources()) do
    local fields
    for _, line in ipairs(lines_of(path)) do
      local class, parent = line:match "^%-%-%-@class (%S+_options)%s?:?%s?(%S*)"
      if class then
        fields = { parent = parent ~= "" and parent or nil }
        found[class] = fields
      elseif not line:find "^%-%-%-" then
        fields = nil
      end
      local name = fields and line:match "^%-%-%-@field ([%w_]+)"
      if name then fields[name] = true end
    end
  end
  for _, fields in pairs(found) do
    for name in pairs(found[fields.parent] or {}) do fields[name] = true end
    fields.parent = nil
  end
  return found
end

-- Returns the options for which each function checks: name in messages → { [option] = true }.
local function accepted_options()
  local accepted, check = {}, options.check_options
  options.check_options = function(given, known, what, level)
    accepted[what] = {}
    for name in pairs(known) do accepted[what][name] = true end
    return check(given, known, what, level)
  end
  local client = holdfast.new { url = "rediss://localhost", tls = {} }
  for _, name in ipairs { "lock", "with_lock", "lead", "idempotent", "fence", "latch" } do
    pcall(client[name], client, "k", {})
  end
  pcall(client.once, client, "k", 1, {})
  pcall(client:one_by_one({}).execute, client:one_by_one(), "type", "id", {})
  for _, name in ipairs { "semaphore", "plain_semaphore" } do
    local semaphore = client[name](client, "k", {})
    pcall(semaphore.with_permit, semaphore, {})
  end
  pcall(holdfast.idempotent_request, {})
  pcall(holdfast.fence, {})
  options.check_options = check
  client:close()
  return accepted
end

it("the annotation of each options table lists the accepted options", function()
  local accepted = accepted_options()
  for class, fields in pairs(annotated_options()) do
    assert.same(accepted[assert(reference.function_of[class], class)], fields, class)
  end
end)
