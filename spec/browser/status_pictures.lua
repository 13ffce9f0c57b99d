-- Writes the pictures of the status page into docs/pictures, from a real run of about five minutes:
-- tools/pictures 20-status

local chromium = require "spec.browser.chromium"
local process = require "spec.support.process"
local scenes = require "spec.browser.scene"

local SECONDS = 300 -- shown by the plots

local function picture(browser, name, width, height, scheme)
  browser:resize(width, height)
  browser:colours(scheme)
  process.sleep(2.5) -- until the next reply
  browser:screenshot(("docs/pictures/status-%s.png"):format(name))
end

local function take(browser, scene)
  browser:resize(1200, 760)
  browser:go(scene:url())
  process.sleep(3)
  scene:fill()
  process.sleep(SECONDS)
  browser:run "document.querySelector('.key').click()"
  picture(browser, "light", 1200, 760, "light")
  picture(browser, "dark", 1200, 760, "dark")
  browser:run "document.querySelector('.key').click()"
  picture(browser, "phone", 390, 760, "light")
end

local scene, browser = scenes.new(), chromium.open()
local ok, err = xpcall(take, debug.traceback, browser, scene)
browser:stop()
scene:stop()
if not ok then error(err, 0) end
