-- What programs write or sort for each other does not change when one calls os.setlocale.

local locale = require "spec.support.locale"
local process = require "spec.support.process"
local redis = require "spec.support.redis"

local PROGRAM = [==[
  local holdfast, core = require "holdfast", require "holdfast.core"
  local json, options = require "holdfast.command.json", require "holdfast.command.options"
  local exits = require "holdfast.command.exits"
  local hints, library, record = require "holdfast.hints", require "holdfast.options", require "holdfast.record"
  local metrics, servers = require "holdfast.metrics", require "holdfast.servers"
  if arg[2] ~= "" then
    assert(os.setlocale(arg[2]))
    local follows = not rawget(_G, "jit")
    assert((("%.1f"):format(0.5) == "0,5") == follows, "no decimal comma")
    assert((("a" < "B") == follows) , "no order of its own")
  end
  local client = holdfast.new { url = arg[1] }
  local function show(name, ...)
    for i = 1, select("#", ...) do
      local value = select(i, ...)
      print(name, type(value) == "number" and ("%d"):format(value * 1000) or value)
    end
  end

  for _, id in ipairs { 1.5, -0.1, 1e100 + 0.5, 3, 2^53, 1 / 3, 12345.678, 1e-7 } do
    show("id", library.part_text(id))
  end
  show("id", client:one_by_one():execute("price", 1.5, function(lock) return lock:key() end))

  local written = record.encode(1000, 1.5, 0.1, -2.5e-300, 7, 2^60, { x = 0.25 })
  show("record", written)
  local read = record.decode(written)
  assert(read[2] == 0.1 and read[3] == -2.5e-300 and read[6].x == 0.25)
  assert(record.decode "D1.5;"[1] == 1.5 and not record.decode "D1,5;")

  show("metrics", metrics.render { { "wait_seconds", "_sum", 'class="i"', 1.5 } })
  for _, sample in ipairs(metrics.samples(client)) do
    if sample[1] == "wait_seconds" then show("metrics", sample[3]) end
  end

  show("json", json.object { { "I", 1.5 }, { "\150\228", 1e-7 }, { "i\127", "\1\133\195\164" }, { "b", true } })

  local keys = client:multi_lock({ "a", "B", "i", "I", "\253", "z", "_" }):keys()
  show("order", table.concat(keys, " "))
  show("order", hints.nearest("WAIT", { wai = 1, WAI = 1, wAIT = 1 }))

  for _, text in ipairs { "1.5", "1,5", "1.5s", "90", "1h30m", "0.25m", ".5", "1e1", "x" } do
    show("duration", options.duration(text))
  end
  for _, text in ipairs { "3", "3.0", "3.5", "3,0" } do show("count", options.count(text)) end
  for _, code in ipairs { "denied", "deadlock", "conflict", "duplicate" } do show("exit", exits.of(code)) end
  show("servers", table.concat(assert(servers.split("a b,\160c")), "|"))

  local lock = assert(client:lock("k", { lease = 10 }):acquire(0))
  local other = holdfast.new { url = arg[1] }
  local function digits(text) return (text:gsub("%d+", "N")) end
  show("message", digits(tostring(lock)), digits((select(2, other:lock("k"):acquire(0)))):match ": (.*)")
  show("message", select(2, pcall(client.lock, client, "k", { lease = -1.5 })))
  show("message", select(2, pcall(client.lock, client, "k", { LEASETIME = 1 })))
  show("message", select(2, pcall(holdfast.new, { servers = { "redis://i", "redis://I" }, mode = "quorum" })))
  lock:release()
  other:close()
  client:close()
]==]

-- The output in any locale.
local EXPECTED = {
  "id\t1.5", "id\t-0.1", "id\t0.33333333333333", "id\t12345.678", "id\t1e-07", "id\t9007199254740992",
  "id\tprice_1.5", "metrics\tclass=\"\",le=\"0.5\"", "holdfast_wait_seconds_sum{class=\"i\"} 1.5",
  "duration\t1500\n", "duration\t15000\n", "duration\t500\n", "exit\t73000", "exit\t77000", "servers\ta|b|\160c",
  "message\tholdfast.lock: k (held, N.N s left)", "did you mean \"lease\"?", "not -1.5",
  "this server is given twice (server 2)", "order\tB I _ a i z \253\n",
}

describe("under a custom locale", function()
  it("a program formats, parses and sorts as in the C locale", function()
    local server = redis.start {}
    locale.make(server.directory)
    local outputs = {}
    for i, name in ipairs { "", locale.name } do
      local program = process.lua {
        code = PROGRAM, args = { server:url(), name }, env = { LOCPATH = server.directory },
      }
      assert.equal("exit 0", table.concat({ program:wait(20) }, " "), program:output())
      outputs[i] = program:output()
    end
    server:stop()
    for _, text in ipairs(EXPECTED) do
      assert.is_truthy(outputs[1]:find(text, 1, true), text .. "\n" .. outputs[1])
    end
    assert.equal(outputs[1], outputs[2])
  end)
end)
