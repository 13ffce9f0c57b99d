-- holdfast latch: a gate that opens when a count reaches 0, for scripts on several hosts.

local core = require "holdfast.core"
local exits = require "holdfast.command.exits"
local options = require "holdfast.command.options"
local output = require "holdfast.command.output"
local target = require "holdfast.command.target"
local subcommand = require "holdfast.command.subcommand"
local waiting = require "holdfast.command.waiting"

local latch = {}

latch.usage = "holdfast latch [options] set KEY COUNT\n" ..
  "       holdfast latch [options] down KEY [COUNT]\n" ..
  "       holdfast latch [options] wait KEY\n" ..
  "       holdfast latch [options] {count|delete} KEY"
latch.summary = "Wait for a counter to reach 0, or count it down."
latch.options = subcommand.options(latch, {
  title = "Latch",
  { "no-wait", short = "n", help = "wait: fail at once if the latch is closed" },
  { "wait", short = "w", value = "TIME", check = options.seconds,
    help = "wait: give up after this long (default: wait forever)" },
  { "busy-exit", short = "E", value = "CODE", check = options.exit_code,
    help = "exit code if the latch is still closed (default: 1); 0 also suppresses the message" },
  { "quiet", short = "q", help = "print neither the count nor the message that the latch is still closed" },
}, target.reporting)
latch.details = "set     starts a count; fails if the latch is already counting\n" ..
  "down    counts down by COUNT (default: 1) and prints what is left; fails if the latch is open\n" ..
  "wait    waits until the count is 0\n" ..
  "count   prints what is left\n" ..
  "delete  opens the latch at once\n\n" ..
  "A latch that was never set is open: set it before others count it down or wait for it.\n\n" ..
  target.TIME .. "\n\n" ..
  exits.help "latch"
latch.examples = {
  "holdfast latch set build:7 2                 # two parts still to be done",
  "holdfast latch down build:7                  # one of them is done",
  "holdfast latch wait -w 10m build:7 || ./late # wait for both, for at most 10 minutes",
}

-- Reports that the latch is not in the expected state, unless the options suppress it. → the exit
-- code
local function report_refusal(given, out, message)
  local exit = given["busy-exit"] or exits.BUSY
  if given.quiet or exit == 0 then return exit end
  return out:fail(exit, "busy", message)
end

local function begin_report(client, key, seconds, given, out, config)
  waiting.begin(out, {
    client = client, seconds = seconds, since = core.now(), config = config, quiet = given.quiet,
    key = key,
    subject = function() return ('waiting for the latch "%s"'):format(key) end,
    poll = waiting.for_latch(key),
  })
end

local function print_count(given, count)
  if not given.quiet then output.print(("%.0f"):format(count)) end
  return exits.OK
end

-- an action's name -> function(latch, count or seconds, given, out, the latch's name)
-- → the exit code | nil, message, code
local ACTIONS = {}

function ACTIONS.set(self, count, given, out, name)
  local set, message, code = self:set(count)
  if set == nil then return nil, message, code end
  return set and exits.OK or report_refusal(given, out, name .. " is already counting")
end

function ACTIONS.down(self, count, given, out, name)
  local left, message, code = self:count_down(count or 1)
  if left == nil then return nil, message, code end
  return left and print_count(given, left) or report_refusal(given, out, name .. " is open")
end

function ACTIONS.wait(self, seconds, given, out)
  local open, message, code = self:wait(seconds)
  waiting.finish()
  if code == "timeout" then return report_refusal(given, out, message) end
  return open and exits.OK, message, code
end

function ACTIONS.count(self, _, given)
  local count, message, code = self:count()
  return count and print_count(given, count), message, code
end

function ACTIONS.delete(self)
  local deleted, message, code = self:delete()
  if deleted == nil then return nil, message, code end
  return exits.OK
end

local TAKES_COUNT = { set = true, down = true }

-- → the action's name; its argument: the COUNT, the seconds to wait, or nil | nil, message
local function parse(given, words)
  local name = words[1]
  local action = ACTIONS[name]
  if not action then return nil, ('"%s" is not one of set, down, wait, count, delete'):format(name) end
  if words[2] == "" then return nil, "KEY is empty" end
  local problem = target.key_problem(words[2])
  if problem then return nil, problem end
  if given["no-wait"] and given.wait then return nil, "-n and -w cannot be combined" end
  if given.quiet and given.verbose then return nil, "-q and -v cannot be combined" end
  if name ~= "wait" and (given["no-wait"] or given.wait) then
    return nil, "-n and -w work only with `latch wait`"
  end
  if words[3] and not TAKES_COUNT[name] then
    return nil, ('unexpected argument "%s" for latch %s'):format(words[3], name)
  end
  if name == "set" and not words[3] then return nil, "`latch set` needs a COUNT after the KEY" end
  if name == "wait" then return name, given["no-wait"] and 0 or given.wait or math.huge end
  if not words[3] then return name end
  local count, expected = options.count(words[3])
  if not count then return nil, ('COUNT must be %s, not "%s"'):format(expected, words[3]) end
  return name, count
end

function latch.main(args)
  return subcommand.run(latch, "latch", args, 2, 3, function(client, given, words, out, config)
    local action, argument = parse(given, words)
    if not action then return out:fail(exits.USAGE, "usage", argument) end
    local name = ('"%s"'):format(output.printable(words[2]))
    if action == "wait" then begin_report(client, words[2], argument, given, out, config) end
    local exit, message, code = ACTIONS[action](client:latch(words[2]), argument, given, out, name)
    return exit or subcommand.failed(out, message, code)
  end)
end

return latch
