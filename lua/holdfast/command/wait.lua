-- holdfast wait: waits until locks are free. It only reads, and does not join the queue.

local core = require "holdfast.core"
local exits = require "holdfast.command.exits"
local holder = require "holdfast.holder"
local locks = require "holdfast.command.locks"
local names = require "holdfast.names"
local options = require "holdfast.command.options"
local output = require "holdfast.command.output"
local process = require "holdfast.process"
local settings = require "holdfast.command.settings"
local target = require "holdfast.command.target"
local subcommand = require "holdfast.command.subcommand"
local waiting = require "holdfast.command.waiting"

local wait = {}

wait.usage = "holdfast wait [options] KEY…"
wait.summary = "Wait until a lock is free; with several KEYs, until all are free at the same time."
wait.takes_several_servers = true
wait.options = options.join(target.waiting, settings.options, target.reporting)
wait.details = "This subcommand does not take the lock or join the queue. It polls, so it can miss a lock that\n"
  .. "is only briefly free. To be the next holder, use `holdfast run`.\n\n" .. target.TIME .. "\n\n" .. exits.help "wait"
wait.examples = {
  "holdfast wait backup && ./restore    # once no backup is running",
  "holdfast wait -w 10m stock:7 stock:9 # until both are free, for at most 10 minutes",
  "holdfast wait -n -q backup           # a test: is it free now?",
}

local FIRST_PAUSE, MAX_PAUSE = 0.02, 0.5 -- seconds between polls

-- → the entry of the first held lock, or false if all are free | nil, message, code
local function first_held(client, keys)
  for _, key in ipairs(keys) do
    local entry, message, code = locks.inspect(client, key)
    if not entry then return nil, message, code end
    if locks.is_taken(entry) then return entry end
  end
  return false
end

local function report_held(client, entry, given, out)
  local exit = given["busy-exit"] or exits.BUSY
  if given.quiet or exit == 0 then return exit end
  if entry.count then
    return out:fail(exit, "busy", ('the count of "%s" is still %.0f'):format(output.printable(entry.key),
      entry.count))
  end
  local times = holder.format_times(entry.held_for, entry.ttl)
  local who = entry.owner and names.read(client, entry.owner)
  if who then who.held_for = entry.held_for end
  local by_whom = who and " by " .. holder.format(who) or ""
  return out:fail(exit, "busy", ('"%s" is held%s%s'):format(output.printable(entry.key), by_whom, times), who)
end

-- Polls until `deadline`. After the first reply, outages and temporary refusals do not end the
-- polling. → false if all are free | the entry of a lock still held | nil, message, code
local function poll_until_free(client, keys, deadline)
  local pause, has_reply = FIRST_PAUSE, false
  while true do
    local held, message, code = first_held(client, keys)
    local is_over = core.now() >= deadline
    if held == false or held and is_over then return held end
    local keeps_polling = held or has_reply and not is_over and core.is_transient(code, true)
    if not keeps_polling then return nil, message, code end
    has_reply = true
    process.wait(math.max(math.min(pause, deadline - core.now()), 0))
    pause = math.min(pause * 1.5, MAX_PAUSE)
  end
end

function wait.main(args)
  return subcommand.run(wait, "wait", args, 1, math.huge, function(client, given, words, out, config)
    local plan, message = target.read(given, words)
    if not plan then return out:fail(exits.USAGE, "usage", message) end
    local now = core.now()
    waiting.begin(out, {
      client = client, seconds = plan.wait, since = now, config = config, quiet = given.quiet,
      key = plan.keys[1],
      subject = function(key) return ('waiting until "%s" is free'):format(key) end,
      poll = waiting.for_free(plan.keys, function(poller) return first_held(poller, plan.keys) end),
    })
    local held, failure, code = poll_until_free(client, plan.keys, now + plan.wait)
    waiting.finish()
    if held == false then return exits.OK end
    if held then return report_held(client, held, given, out) end
    return subcommand.failed(out, failure, code)
  end)
end

return wait
