-- The command as one file (make static), in a root directory without other files. With
-- HOLDFAST_STATIC, the specs of the command run this file as well.

local certificates = require "spec.support.certificates"
local files = require "spec.support.files"
local process = require "spec.support.process"
local options = { tcp = true }
local world = require("spec.support.world").new(options)

local PATIENCE = 20
local MAX_BYTES = 8 * 1024 * 1024
local PROGRAM = os.getenv "HOLDFAST_STATIC" or process.build .. "/static/holdfast"

local function is_there(path)
  local file = io.open(path, "rb")
  if file then file:close() end
  return file ~= nil
end

-- chroot needs root.
local can_run = is_there(PROGRAM) and process.succeeds "chroot / true 2>/dev/null"

describe("the statically linked command", function()
  if not can_run then return it("needs make static, and root", function() pending "not here" end) end

  local root, made

  setup(function()
    made = certificates.make()
    options.tls = { cert = made.server.cert, key = made.server.key, ca = made.ca.cert }
    root = process.directory()
    assert(process.succeeds(("cp '%s' '%s/holdfast' && cp '%s' '%s/ca.pem'"):format(PROGRAM, root,
      made.ca.cert, root)))
  end)
  teardown(function() process.remove(root) end)
  before_each(world.open)
  after_each(function()
    world.cli("FLUSHALL")
    world.close()
  end)

  -- → how it ended, its code, its output
  local function run(url, ...)
    local child = process.start {
      "chroot", root, "/holdfast", env = {
        HOLDFAST_URL = url, HOLDFAST_SERVERS = false, HOLDFAST_CONFIG = false, LD_PRELOAD = false,
        LUA_PATH = "/?.lua", LUA_CPATH = "/?.so", LUA_INIT = "error 'is read'",
      }, ...,
    }
    world.children[#world.children + 1] = child
    local how, code = child:wait(PATIENCE)
    return how, code, child:output()
  end

  it("is at most 8 MB", function()
    local file = assert(io.open(PROGRAM, "rb"))
    local size = file:seek "end"
    file:close()
    assert.is_true(size <= MAX_BYTES, size)
  end)

  it("loads no Lua modules or settings from outside", function()
    local version = require("holdfast")._VERSION
    assert.same({ "exit", 0, "holdfast " .. version .. "\n" }, { run(nil, "--version") })
  end)

  it("runs a program under a lock", function()
    local how, code, output = run(world.server:tcp_url(), "run", "-v", "k", "--", "/holdfast", "show", "k")
    assert.same({ "exit", 0 }, { how, code }, output)
    assert.matches("\nstate    held\n", output)
    assert.matches('released "k"', output, 1, true)
  end)

  it("trusts only the certificate authorities in --ca", function()
    local url = world.server:tls_url():gsub("localhost", "127.0.0.1")
    local how, code, output = run(url, "run", "--ca", "/ca.pem", "k", "--", "/holdfast", "--version")
    assert.same({ "exit", 0 }, { how, code }, output)
    how, code, output = run(url, "run", "k", "--", "/holdfast", "--version")
    assert.same({ "exit", 69 }, { how, code }, output)
    assert.matches("certificate", output)
  end)

  it("exits with 127 for a program that does not exist", function()
    local how, code, output = run(world.server:tcp_url(), "run", "k", "--", "/bin/sh", "-c", "true")
    assert.same({ "exit", 127 }, { how, code }, output)
  end)

  it("resolves names from /etc/hosts", function()
    assert(process.succeeds(("mkdir '%s/etc'"):format(root)))
    files.write(root .. "/etc/hosts", "127.0.0.1 redis.internal\n")
    local url = world.server:tcp_url():gsub("//[^:/]+", "//redis.internal")
    local how, code, output = run(url, "ping")
    assert.same({ "exit", 0 }, { how, code }, output)
  end)
end)
