-- holdfast show: one lock, its holder and its queue.

local exits = require "holdfast.command.exits"
local identity = require "holdfast.command.identity"
local json = require "holdfast.command.json"
local locks = require "holdfast.command.locks"
local output = require "holdfast.command.output"
local verb = require "holdfast.command.verb"

local show = {}

show.usage = "holdfast show [options] KEY"
show.summary = "Shows who holds the lock KEY and who waits for it. Exit code 1 when it is free."

show.of_servers = true
show.options = {
  { "json", help = "as one JSON object" },
  verb.url,
  verb.servers,
}

local WAITERS = 50

local function line(name, text)
  if text then print(("%-8s %s"):format(name, output.printable(text))) end
end

local function print_text(entry, waiters, names)
  line("key", entry.key)
  line("state", entry.owner and (entry.mutex and "held, a mutex" or "held") or "free")
  if entry.owner then
    line("owner", entry.owner)
    line("who", identity.text(names(entry.owner)))
    line("holds", ("%d"):format(entry.holds))
    line("ttl", locks.seconds(entry.ttl))
  end
  line("token", entry.token and locks.token(entry.token))
  line("waiters", ("%d"):format(entry.waiters))
  for _, waiter in ipairs(waiters) do
    line(("%6d"):format(waiter.place), identity.text(names(waiter.owner)) or waiter.owner)
  end
  if entry.waiters > #waiters then line("", "…") end
end

local function waiter_json(waiter, who)
  return json.object {
    { "owner", waiter.owner }, { "host", who and who.host }, { "pid", who and who.pid }, { "name", who and who.name },
  }
end

local function print_json(entry, waiters, names)
  local fields, queue = locks.fields(entry, entry.owner and names(entry.owner)), {}
  for i, waiter in ipairs(waiters) do queue[i] = waiter_json(waiter, names(waiter.owner)) end
  fields[#fields + 1] = { "queue", json.list(queue) }
  print(json.object(fields))
end

function show.main(args)
  return verb.run(show, "show", args, 1, 1, function(client, given, words, out)
    local key = words[1]
    local _, mutex = locks.handle(client, key)
    local entry, message, code = locks.read(client, key, mutex)
    if not entry then return verb.failed(out, message, code) end
    local print_entry = given.json and print_json or print_text
    print_entry(entry, locks.waiters(client, key, WAITERS), locks.names(client))
    return entry.owner and exits.OK or exits.BUSY
  end)
end

return show
