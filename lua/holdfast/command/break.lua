-- holdfast break: takes a lock away from its holder.

local core = require "holdfast.core"
local driver = require "holdfast.driver"
local exits = require "holdfast.command.exits"
local identity = require "holdfast.command.identity"
local kinds = require "holdfast.command.kinds"
local locks = require "holdfast.command.locks"
local output = require "holdfast.command.output"
local permits = require "holdfast.command.permits"
local locale = require "holdfast.locale"
local process = require "holdfast.process"
local records = require "holdfast.command.records"
local subcommand = require "holdfast.command.subcommand"

local break_lock = {}

local MAX_OWNER_SIZE = 255

break_lock.usage = "holdfast break [options] KEY"
break_lock.summary = "Take the lock KEY from its holder, after confirmation. Exits with 1 if it was not held."
break_lock.details = "The lock passes to the next waiter. The old holder is not stopped: it keeps running until its\n" ..
  "next renewal or, at the latest, until its lease ends; `break` says how long that is.\n\n" ..
  "A semaphore gets all its permits back. If somebody is waiting for a latch, `break`\n" ..
  "opens it. If the lock is free and its job counts as done (`run --idempotent`,\n" ..
  "`run --once-per`), `break` lets the job run again."

break_lock.takes_several_servers = true
break_lock.options = subcommand.options(break_lock, {
  { "yes", short = "y", help = "do not ask" },
  { "mutex", help = "treat any string as a mutex, even if another program set it" },
})
break_lock.examples = {
  "holdfast break backup               # asks first, and says who holds it",
  "holdfast break --yes backup         # for scripts",
  "holdfast break --mutex --yes lock:7 # a lock set with SET NX by another program",
}

local function confirm(question, ...)
  io.stderr:write(question:format(...))
  local reply = io.stdin:read("*l")
  return reply ~= nil and locale.lower(reply):find("^[ \t]*ye?s?[ \t\r]*$") ~= nil
end

-- Describes how long the holder may continue: it learns of the loss at its next renewal, or at the
-- latest when its lease ends.
local function overlap_text(entry)
  local limit = entry.ttl and entry.ttl < math.huge and ("for at most %.0f s"):format(math.ceil(entry.ttl))
    or "possibly forever"
  return ("running until its next renewal (%s), alongside the next holder"):format(limit)
end

local function confirm_break(client, entry)
  if entry.permits then
    return confirm('Clients hold %s of "%s"; their work would keep running unprotected. Take the permits back? [y/N] ',
      locks.holder_text(entry), output.name(entry.key))
  end
  if kinds[entry.kind].removes then
    return confirm('The latch "%s" still has a count of %.0f; its waiters would continue at once. Open it? [y/N] ',
      output.name(entry.key), entry.count)
  end
  local holder = identity.text(identity.read(client, entry.owner)) or entry.owner
  return confirm('The lock "%s" is held by %s; the holder would keep %s. Break the lock? [y/N] ',
    output.name(entry.key), output.name(holder), overlap_text(entry))
end

local function has_common(a, b)
  local in_a = {}
  for _, value in ipairs(a) do in_a[value] = true end
  for _, value in ipairs(b) do if in_a[value] then return true end end
  return false
end

-- Returns whether the lock is free or still belongs to the holder that was shown to the user; for a
-- latch, whether it is open or still has that count. `ids`: the permits that were shown, if known;
-- a semaphore is unchanged if any of them is still taken, or if none is taken.
local function is_unchanged(client, entry, ids)
  if entry.permits then
    local taken = ids and permits.taken(client, entry.key) or {}
    return #taken == 0 or has_common(ids, taken)
  end
  local current = locks.inspect(client, entry.key)
  -- With --mutex, a number counts as a mutex.
  if current and current.count and entry.owner then
    current = locks.read(client, entry.key, "mutex")
  end
  if not current or not current.held then return true end
  if kinds[entry.kind].removes then return current.count == entry.count end
  return current.owner == entry.owner and current.token == entry.token
end

local CHANGED = 'the lock "%s" has changed hands since you were asked; nothing was broken'
local OTHER_PERMITS = 'the permits of "%s" have changed hands since you were asked; none was taken back'
local OTHER_COUNT = 'the count of the latch "%s" has changed since you were asked; it was not opened'
local RUN_AGAIN = 'the job "%s" has begun or ended again since you were asked; nothing was deleted'

local function changed(entry, out)
  local message = entry.permits and OTHER_PERMITS or kinds[entry.kind].removes and OTHER_COUNT
    or CHANGED
  return out:fail(exits.BUSY, "changed", message:format(output.name(entry.key)))
end

-- → whether to break the lock | nil, the exit code
local function confirm_unchanged(client, entry, ids, out)
  if not confirm_break(client, entry) then return nil, exits.BUSY end
  if is_unchanged(client, entry, ids) then return true end
  return nil, changed(entry, out)
end

-- → the only owner whose lock may be broken | nil: any, because the owner may be truncated
local function expected_owner(entry)
  return #(entry.owner or "") < MAX_OWNER_SIZE and entry.owner or nil
end

-- yes: the user was not asked, so the lock may be taken from any holder. ids: see is_unchanged.
local function force(client, entry, lock, out, yes, ids)
  local key, was_locked, message, code = entry.key
  if entry.permits then
    was_locked, message, code = permits.take_back(client, entry, lock, ids)
  elseif kinds[entry.kind].removes then
    local latch = driver.reader(client, key, kinds[entry.kind].core_kind)
    was_locked, message, code = core.lock.delete(latch, yes and 0 or entry.count)
  else
    local owner = not yes and expected_owner(entry) or ""
    was_locked, message, code = core.lock.force_release(lock, owner)
  end
  if code then return subcommand.failed(out, message, code) end
  local may_have_changed = not was_locked and not yes
  if may_have_changed and not is_unchanged(client, entry, ids) then return changed(entry, out) end
  if was_locked and entry.owner and yes then
    out:advice("warning", {}, ('the holder of "%s" is not stopped: it keeps %s'):format(key, overlap_text(entry)))
  end
  output.print(output.name(key) .. (was_locked and ": broken" or ": was free"))
  return was_locked and exits.OK or exits.BUSY
end

-- → why the job would not run now, according to its record | nil if there is no record
local function record_reason(client, key)
  local ttl = records.ttl(client, key)
  if ttl then return "counts as done for another " .. locks.seconds(ttl) end
  local run = records.last_run(client, key)
  return run and ("was last run by %s, %s ago"):format(identity.text(run), locks.seconds(math.max(run.age, 0)))
end

local function forget(client, key, given, out)
  local ids, why = records.ids(client, key), record_reason(client, key)
  if why and not given.yes and not confirm('The job "%s" %s. Let it run again? [y/N] ', output.name(key), why) then
    return exits.BUSY
  end
  local forgotten, message, code = false, nil, nil
  if why then forgotten, message, code = records.forget(client, key, ids) end
  if code then return subcommand.failed(out, message, code) end
  if why and not forgotten then
    return out:fail(exits.BUSY, "changed", RUN_AGAIN:format(output.name(key)))
  end
  output.print(output.name(key) .. (forgotten and ": may run again" or ": was free"))
  return forgotten and exits.OK or exits.BUSY
end

function break_lock.main(args)
  return subcommand.run(break_lock, "break", args, 1, 1, function(client, given, words, out)
    local key = words[1]
    if key == "" then return out:fail(exits.USAGE, "usage", "KEY is empty") end
    if not given.yes and not process.is_terminal(0) then
      return out:fail(exits.USAGE, "usage", "cannot ask for confirmation: standard input is not a terminal; use --yes to break the lock without asking")
    end
    local entry, lock, code = locks.inspect_to_break(client, key, given.mutex)
    if not entry then return subcommand.failed(out, lock, code) end
    if not entry.held then return forget(client, key, given, out) end
    local ids = not given.yes and entry.permits and permits.taken(client, key) or nil
    if not given.yes then
      local is_confirmed, exit = confirm_unchanged(client, entry, ids, out)
      if not is_confirmed then return exit end
    end
    return force(client, entry, lock, out, given.yes, ids)
  end)
end

return break_lock
