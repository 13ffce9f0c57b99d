-- holdfast hold: acquires the locks and holds them until a signal, or until one is lost.

local exits = require "holdfast.command.exits"
local holding = require "holdfast.command.holding"
local options = require "holdfast.command.options"
local output = require "holdfast.command.output"
local process = require "holdfast.process"
local settings = require "holdfast.command.settings"
local signals = require "holdfast.command.signals"
local target = require "holdfast.command.target"

local hold = {}

hold.usage = "holdfast hold [options] KEY…"
hold.summary = "Hold a lock until interrupted by a signal. Prints the lock's key and fencing token."
hold.options = options.join(target.waiting, target.locking, settings.options, target.reporting)
hold.details = target.TIME .. "\n\n" .. exits.help "hold"
hold.examples = {
  "holdfast hold migrations                # until Ctrl-C",
  "holdfast hold -w 1m stock:7 stock:9     # several locks; gives up after a minute",
  "holdfast hold --name maintenance backup # `holdfast show backup` prints the name",
}

-- Holds the locks until a loss or a signal. A lock counts as lost a tenth of its lease before it
-- can expire, which gives its users time to stop. → the reason for the loss, the seconds left |
-- nil, the signal's name
local function wait_for_end(held, plan)
  local period = math.max(0.02, math.min(plan.lease / 20, 0.5))
  while true do
    held:tick()
    local reason, seconds_left = held:lost(), held.group:remaining()
    local pause = seconds_left - plan.lease / 10
    if not reason and pause <= 0 then reason = "unreachable" end
    if reason then return reason, seconds_left end
    local name = process.wait(math.min(pause, period))
    if name and signals.terminating[name] then return nil, name end
  end
end

-- Prints keys and tokens. → true | nil, message
local function print_held(locks)
  for _, lock in ipairs(locks) do
    output.print(output.name(lock:key()) .. " " .. target.token_text(lock))
  end
  return output.flush()
end

-- Prints the locks, holds them until a signal or a loss, and releases them. If they cannot be
-- printed, releases them at once, because the reader of the output would not know that they are
-- held. → the exit code
local function hold_until_end(held, plan, out)
  local printed, message = print_held(held.locks)
  if not printed then
    held:release()
    return out:report_write_failure(message)
  end
  local reason, detail = wait_for_end(held, plan)
  if reason then
    held:report_lost(reason, detail, "exiting")
  else
    out:event("signal", { { "signal", detail } }, "terminated by " .. detail)
  end
  local released, loss = held:release()
  if reason or not released then return held:failed_by_loss(loss) end
  return exits.OK
end

function hold.main(args)
  local given, words, rest = options.read(hold.options, args, 2)
  local out = output.new("holdfast hold", given or { json = options.asks_for(args, "--json") })
  local plan, client, message
  if not given then return out:fail(exits.USAGE, "usage", words) end
  for _, word in ipairs(rest or {}) do words[#words + 1] = word end
  plan, message = target.read(given, words)
  if plan then client, message = target.client(plan) end
  if not client then return out:fail(exits.USAGE, "usage", message) end
  local held = holding.new(client, plan, out)
  local acquired, why, code = held:acquire()
  local exit = acquired and hold_until_end(held, plan, out)
    or not acquired and held:failed(why, code)
  held:close()
  return exit
end

return hold
