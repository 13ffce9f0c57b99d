-- Writes docs/pictures/status-light.png from a real run of about five minutes:
-- tools/pictures status

local chromium = require "spec.browser.chromium"
local process = require "spec.support.process"
local scenes = require "spec.browser.scene"

local SECONDS = 300 -- shown by the plots

local function take(browser, scene)
  browser:resize(1200, 760)
  browser:go(scene:url())
  process.sleep(3)
  scene:fill()
  process.sleep(SECONDS)
  browser:run "document.querySelector('.key').click()"
  browser:colours "light"
  process.sleep(2.5) -- until the next reply
  browser:screenshot "docs/pictures/status-light.png"
end

local scene, browser = scenes.new(), chromium.open()
local ok, err = xpcall(take, debug.traceback, browser, scene)
browser:stop()
scene:stop()
if not ok then error(err, 0) end
