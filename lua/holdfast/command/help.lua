-- Help texts, and the error messages for unknown subcommands.

local hints = require "holdfast.hints"

local help = {}

local SERVER = [[

The server is --url URL, $HOLDFAST_URL, the settings file's url, or else redis://127.0.0.1:6379:
  redis://[user:password@]host[:port][/db]  one server; unix:///path for its socket
  redis+sentinel://host,host/master         the master that these Sentinels report
  redis+cluster://host,host                 the cluster of these nodes
With rediss in place of redis it uses TLS; valkey means the same as redis.]]

-- Returns the text of `holdfast --help`, which lists the subcommands. `subcommands`: their names,
-- in order; load(name) returns the module of a subcommand.
function help.overview(subcommands, load)
  local lines = { "Usage: holdfast SUBCOMMAND [options]", "",
    "Distributed locks on Redis or Valkey, for shells, cron and CI.", "" }
  for _, subcommand in ipairs(subcommands) do
    lines[#lines + 1] = ("  %-9s %s"):format(subcommand, load(subcommand).summary)
  end
  lines[#lines + 1] = SERVER
  lines[#lines + 1] = "\nholdfast SUBCOMMAND --help prints that subcommand's options and examples."
  return table.concat(lines, "\n")
end

-- ---- help for a subcommand ----

local function left_side(option)
  local short = option.short and "-" .. option.short .. ", " or "    "
  return short .. "--" .. option[1] .. (option.value and " " .. option.value or "")
end

local COLUMNS, INDENT = 80, 29 -- line width; column at which an option's help text begins

-- Breaks the text into lines that fit into the column to the right of the options' names.
local function wrap(text)
  local lines, line = {}, ""
  for word in text:gmatch("[^ ]+") do
    if line ~= "" and INDENT + #line + 1 + #word > COLUMNS then
      lines[#lines + 1], line = line, ""
    end
    line = line == "" and word or line .. " " .. word
  end
  lines[#lines + 1] = line
  return table.concat(lines, "\n" .. (" "):rep(INDENT))
end

-- Returns the help for all options, grouped under headings.
local function options_help(options)
  local lines, group = {}, nil
  for _, option in ipairs(options) do
    if not option.hidden then
      if option.group ~= group then
        group = option.group
        lines[#lines + 1] = (#lines > 0 and "\n" or "") .. group .. ":"
      end
      lines[#lines + 1] = ("  %-26s %s"):format(left_side(option), wrap(option.help))
    end
  end
  return table.concat(lines, "\n")
end

-- Returns the help for a subcommand. `command`: its module.
function help.of(command)
  local parts = { "Usage: " .. command.usage, command.summary, options_help(command.options) }
  parts[#parts + 1] = command.details
  if command.examples then
    parts[#parts + 1] = "Examples:\n  " .. table.concat(command.examples, "\n  ")
  end
  return table.concat(parts, "\n\n")
end

-- ---- unknown subcommands ----

-- Names that users may know from other programs → the subcommand to suggest instead.
local SUGGESTIONS = { list = "ls", status = "show", info = "show", lock = "run", exec = "run", acquire = "hold",
  unlock = "break", release = "break" }

local function nearest(word, subcommands)
  local known = {}
  for _, subcommand in ipairs(subcommands) do known[subcommand] = true end
  return SUGGESTIONS[word] or hints.nearest(word, known)
end

-- Returns the error message for a word that is used as the subcommand but is not one.
function help.unknown_subcommand(word, subcommands)
  if word:find("^%-") then
    local suggestion = hints.nearest(word:gsub("^%-+", ""), { help = true, version = true })
    if suggestion then return ("unknown option %s; did you mean --%s?"):format(word, suggestion) end
    return "options come after the subcommand: holdfast SUBCOMMAND " .. word .. " …"
  end
  local suggestion = nearest(word, subcommands)
  return ('unknown subcommand "%s";%s holdfast --help lists all subcommands'):format(word, suggestion
    and (" did you mean holdfast %s?"):format(suggestion) or "")
end

return help
