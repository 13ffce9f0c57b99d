-- emmylua_check, which reads the same annotations as the Lua language server, finds each mistake in
-- spec/types/planted.lua, and nothing wrong with the examples and the Lua code in the documents.

local files = require "spec.support.files"
local lfs = require "lfs"
local pages = require "spec.support.pages"
local process = require "spec.support.process"

local PLANTED = "spec/types/planted.lua"
local MISTAKE = "^(.*) %-%- (.-) → (.*)$" -- the code, what is wrong in it, and what is right

local function write(path, text) files.write(path, text, "\n") end

-- → the line without its mistake, whether it had one
local function corrected(line)
  local code, wrong, right = line:match(MISTAKE)
  if not code then return line, false end
  local first, last = code:find(wrong, 1, true)
  return code:sub(1, first - 1) .. right .. code:sub(last + 1), true
end

-- Writes the planted file and its corrected copy. → the numbers of the lines with a mistake
local function write_planted(directory)
  local text, copy, mistakes = pages.read(PLANTED), {}, {}
  for line in text:gmatch("([^\n]*)\n") do
    local good, had_one = corrected(line)
    copy[#copy + 1] = good
    if had_one then mistakes[#mistakes + 1] = #copy end
  end
  write(directory .. "/planted.lua", text)
  write(directory .. "/corrected.lua", table.concat(copy, "\n"))
  return mistakes
end

-- Copies the examples that use holdfast, except demos, which use what specs use, and each block of
-- Lua in the documents. → how many files
local function write_examples(directory)
  local count = 0
  local function add(path, text)
    count = count + 1
    write(("%s/%s.lua"):format(directory, path:gsub("%W", "_")), text)
  end
  local pipe = assert(io.popen([[
    grep -rl --include='*.lua' 'require "holdfast"' examples | xargs grep -L spec.support
  ]]))
  for path in pipe:lines() do add(path, pages.read(path)) end
  pipe:close()
  for _, path in ipairs(pages.all()) do
    for _, block in ipairs(pages.blocks_in(path, "lua")) do
      add(path .. "_" .. block.line, block.text)
    end
  end
  return count
end

-- What is about the examples, and not about how they use holdfast, is left out.
local CONFIG = [[{
  "runtime": { "version": "Lua5.4" },
  "workspace": { "packages": ["%s/lua/holdfast"] },
  "strict": { "requirePath": true },
  "diagnostics": { "disable": ["unresolved-require", "undefined-global", "await-in-sync", "unnecessary-if",
    "unnecessary-assert", "assign-type-mismatch"] }
}]]

describe("the type checker", function()
  local directory, mistakes, examples, found

  -- found.planted = { line = message, … }, found.elsewhere = { "FILE:LINE: message", … }
  setup(function()
    directory = process.directory()
    mistakes, examples = write_planted(directory), write_examples(directory)
    local config = process.directory() .. "/emmyrc.json"
    write(config, CONFIG:format(lfs.currentdir()))
    local child = process.start { "emmylua_check", "--output-format", "github", "--severity", "warn",
      "--config", config, directory, env = { LD_PRELOAD = false } }
    child:wait(500)
    local output = child:output()
    assert(output:find("file=planted.lua", 1, true), output)
    found = { planted = {}, elsewhere = {} }
    for path, line, message in output:gmatch("::%l+ file=([^\n,]+),line=(%d+)[^\n:]*::([^\n]*)") do
      if path == "planted.lua" then
        found.planted[tonumber(line)] = message
      else
        table.insert(found.elsewhere, ("%s:%s: %s"):format(path, line, message))
      end
    end
  end)

  it("finds each of ten mistakes, and nothing else", function()
    local lines = {}
    for line in pairs(found.planted) do lines[#lines + 1] = line end
    table.sort(lines)
    assert.equal(10, #mistakes)
    assert.same(mistakes, lines)
  end)

  it("finds no mistake in the corrected example, the examples and the documents", function()
    assert.is_true(examples > 50)
    assert.same({}, found.elsewhere)
  end)
end)
