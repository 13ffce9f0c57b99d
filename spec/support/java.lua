-- Runs the Java programs of spec/interop/java, built by spec/interop/build_java.

local process = require "spec.support.process"

local unpack = table.unpack or unpack

local CLASSES = "build/interop/java/classes"
local PATHS = "build/interop/classpath" -- contains the paths of the jars

local java = {
  START_UP = 60, -- seconds; a machine with few cores may start several Java processes at once
}

local function read(path)
  local file = io.open(path)
  local text = file and file:read("*a")
  if file then file:close() end
  return text
end

-- Returns whether this class was built.
function java.has(class)
  return read(PATHS) ~= nil and read(("%s/%s.class"):format(CLASSES, class)) ~= nil
end

-- start("Contender", { arguments... } [, environment]) → the process
function java.start(class, args, env)
  local paths = assert(read(PATHS), "no " .. PATHS .. ": run spec/interop/build_java")
  local command = { "java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx128m", "-cp",
    CLASSES .. ":" .. paths, class, unpack(args) }
  command.env = env
  return process.start(command)
end

return java
