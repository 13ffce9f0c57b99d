-- holdfast break: takes a lock away from whoever holds it.

local exits = require "holdfast.command.exits"
local identity = require "holdfast.command.identity"
local locks = require "holdfast.command.locks"
local output = require "holdfast.command.output"
local process = require "holdfast.process"
local verb = require "holdfast.command.verb"

local break_lock = {}

break_lock.usage = "holdfast break [options] KEY"
break_lock.summary =
  "Takes the lock KEY from its holder, after asking, and passes it on. Exit code 1 when nothing was broken."

break_lock.of_servers = true
break_lock.options = {
  { "yes", short = "y", help = "do not ask" },
  verb.url,
  verb.servers,
}

local function asks(entry, who)
  local holder = identity.text(who) or entry.owner
  io.stderr:write(('The lock "%s" is held by %s; whatever it protects goes on unprotected. Break it? [y/N] '):format(
    output.printable(entry.key), output.printable(holder)))
  local answer = io.stdin:read("*l")
  return answer ~= nil and answer:lower():find("^%s*ye?s?%s*$") ~= nil
end

local function force(lock, key, out)
  local was_locked, message, code = lock:force_release()
  if code then return verb.failed(out, message, code) end
  print(output.printable(key) .. (was_locked and ": broken" or ": was free"))
  return was_locked and exits.OK or exits.BUSY
end

function break_lock.main(args)
  return verb.run(break_lock, "break", args, 1, 1, function(client, given, words, out)
    local key = words[1]
    if not given.yes and not process.is_terminal(0) then
      return out:fail(exits.USAGE, "usage", "nobody to ask: standard input is no terminal; --yes breaks without asking")
    end
    local lock, mutex = locks.handle(client, key)
    local entry, message, code = locks.read(client, key, mutex)
    if not entry then return verb.failed(out, message, code) end
    if entry.owner and not given.yes and not asks(entry, identity.of(client, entry.owner)) then return exits.BUSY end
    return force(lock, key, out)
  end)
end

return break_lock
