-- The departures of a path in words: "delay p1 calls > s1 #3", "crash p1 before s1 > p1 calls #4".

local path = {}

-- made: a world, as world.of returns it. → a list of texts
function path.in_words(departures, made)
  local texts = {}
  for i, departure in ipairs(departures) do
    local fault = departure.fault and made.faults[departure.fault].text
    texts[i] = fault and ("%s before %s"):format(fault, departure.moment)
      or "delay " .. departure.moment
  end
  return texts
end

local function fault_number(text, made)
  for i, fault in ipairs(made.faults) do
    if fault.text == text then return i end
  end
  error(("%s has no fault %q"):format(made.name, text), 0)
end

-- → the departures that these texts stand for
function path.of(texts, made)
  local departures = {}
  for i, text in ipairs(texts) do
    local moment = text:match "^delay (.+)$"
    local fault, later = text:match "^(.-) before (.+)$"
    departures[i] = { moment = moment or later or error("not a departure: " .. text, 0),
      fault = fault and fault_number(fault, made) or nil }
  end
  return departures
end

return path
