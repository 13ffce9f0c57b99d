-- Processes of both sides that wait for messages on a channel, and print "done RESULT".

local assert = require "luassert"
local java = require "spec.support.java"
local process = require "spec.support.process"

local listening = { workers = {} }

-- Adds a process, which stop() ends.
function listening.join(child)
  listening.workers[#listening.workers + 1] = child
  return child
end

function listening.stop()
  for _, child in ipairs(listening.workers) do child:stop() end
  listening.workers = {}
end

function listening.done(child, want, seconds)
  assert(child:wait_output("done [^\n]+", seconds or java.START_UP), child:output())
  assert.equal(want, child:output():match "done ([^\n]+)")
end

-- Waits until `count` clients listen to the channel on this server.
function listening.heard_by(server, count, channel, sharded)
  process.eventually(function()
    return server:cli("PUBSUB", sharded and "SHARDNUMSUB" or "NUMSUB", channel)[2] == count
  end, java.START_UP, "they do not listen")
  process.sleep(0.2) -- for what a client does after its subscription
end

return listening
